/*
 * process/: the process that the library is loaded in. Its life and its place in the run (process), its end before the
 * script's (stop) or by C's exit (exit), and memory that its Python keeps (data_stack).
 * Comes in: phantora_load, phantora_start and phantora_finish, called by emu's Python side. Goes out: the records
 * HELLO, BYE, MEMORY, USAGE and STEPS_DONE.
 */
#ifndef PHANTORA_PROCESS_H
#define PHANTORA_PROCESS_H

#include <stddef.h>

/* Gives threads/ what it calls here. */
void ph_exit_connect(void);
/* Makes a program that calls C's exit end the rank well, from now on. */
void ph_at_exit(void);
/* The coordinator has said STOP. On the reader's thread. */
void ph_told_to_stop(const unsigned char *body, size_t nbytes);

#endif
