/*
 * Python's global interpreter lock. A thread that is about to block (ph_ask, ph_data_wait) releases the lock if it
 * holds it: deferred control tensors need the lock, and what the thread waits for may depend on them. In a process
 * without Python these functions do nothing.
 */
#ifndef PHANTORA_PYTHON_H
#define PHANTORA_PYTHON_H

/* Gives Python's lock back; NULL if the calling thread does not hold it. */
void *ph_python_release(void);
void ph_python_restore(void *released);
/* Are called by threads of the library that run Python code. */
int ph_python_enter(void);
void ph_python_leave(int entered);

#endif
