/* See python.h. The functions of Python are looked up by name, because the library also runs without Python. */
#define _GNU_SOURCE
#include "threads/python.h"
#include "core/lock.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static struct {
    int (*is_initialized)(void);
    int (*check)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*save)(void);
    void (*restore)(void *);
} python;
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

static void look_up(void) {
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"Py_IsInitialized", &python.is_initialized}, {"PyGILState_Check", &python.check},
                     {"PyGILState_Ensure", &python.ensure},        {"PyGILState_Release", &python.release},
                     {"PyEval_SaveThread", &python.save},          {"PyEval_RestoreThread", &python.restore}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(RTLD_DEFAULT, functions[i].name);
        if (!address) {
            memset(&python, 0, sizeof python);
            return;
        }
        memcpy(functions[i].to, &address, sizeof address);
    }
}

void *ph_python_release(void) {
    ph_holds_no_lock();
    ph_thread_blocked(1);
    pthread_once(&looked_up, look_up);
    if (!python.check || !python.is_initialized() || !python.check()) return NULL;
    return python.save();
}

void ph_python_restore(void *released) {
    ph_thread_blocked(-1);
    if (released) python.restore(released);
}

int ph_python_enter(void) {
    ph_holds_no_lock();
    pthread_once(&looked_up, look_up);
    return python.ensure ? python.ensure() : 0;
}

void ph_python_leave(int entered) {
    if (python.release) python.release(entered);
}
