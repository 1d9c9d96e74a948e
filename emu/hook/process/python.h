/*
 * Python's lock (GIL). A thread that blocks (ph_ask, ph_data_wait) releases it meanwhile if it holds it: deferred
 * control tensors need it, and the answer may depend on them. Without Python in the process nothing happens.
 */
#ifndef PHANTORA_PYTHON_H
#define PHANTORA_PYTHON_H

/* NULL if the calling thread does not hold the lock. */
void *ph_python_release(void);
void ph_python_restore(void *released);
/* For threads of the library that run Python code. */
int ph_python_enter(void);
void ph_python_leave(int entered);

#endif
