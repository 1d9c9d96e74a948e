/* Messages to the user. */
#ifndef PHANTORA_WARN_H
#define PHANTORA_WARN_H

/* Once per name: goes to stderr and, as a WARNING record, to the coordinator. */
void ph_warn_once(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A refused call: warns once by name, counts, returns status. */
int ph_refuse(const char *name, int status);
/* Internal errors: prints the message and ends the process with exit code 70. */
_Noreturn void ph_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
