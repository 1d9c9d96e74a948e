/*
 * Counts the turns of one loop of a Python function, while it runs and until it is left. Python's own tracing does so,
 * with a function in C: one in Python would be slow, and would keep the function's old values alive.
 *
 * All functions here are called with Python's lock.
 */
#include "core/base.h"

#include <dlfcn.h>
#include <string.h>

/* The events of Include/cpython/pystate.h. */
enum { TRACE_CALL, TRACE_EXCEPTION, TRACE_LINE, TRACE_RETURN };

typedef int (*trace_function)(void *object, void *frame, int what, void *argument);

static struct {
    void (*set_trace)(trace_function function, void *object);
    int (*line)(void *frame);
} python;

static struct {
    void *frame;
    int first, last;             /* lines of the loop */
    int head;                    /* the line that each turn begins with */
    int inner_first, inner_last; /* lines from which the head is reached within a turn */
    int line;                    /* the latest one */
    uint64_t turns;
} watched;

static void end(void) {
    watched.frame = NULL;
    python.set_trace(NULL, NULL);
}

static int trace(void *object, void *frame, int what, void *argument) {
    (void)object, (void)argument;
    if (frame != watched.frame || what == TRACE_EXCEPTION) return 0;
    int line = what == TRACE_LINE ? python.line(frame) : 0;
    if (line < watched.first || line > watched.last) {
        end();
        return 0;
    }
    if (line == watched.head && (watched.line < watched.inner_first || watched.line > watched.inner_last))
        watched.turns++;
    watched.line = line;
    return 0;
}

/* lines: first, last, head, inner_first, inner_last, and the present one. Returns 0, or -1 if this Python cannot. */
PH_EXPORT int phantora_watch_loop(void *frame, const int32_t *lines) {
    if (!python.line) {
        void *set_trace = dlsym(RTLD_DEFAULT, "PyEval_SetTrace"), *line = dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
        if (!set_trace || !line) return -1;
        memcpy(&python.set_trace, &set_trace, sizeof set_trace);
        memcpy(&python.line, &line, sizeof line);
    }
    watched.frame = frame;
    watched.first = lines[0];
    watched.last = lines[1];
    watched.head = lines[2];
    watched.inner_first = lines[3];
    watched.inner_last = lines[4];
    watched.line = lines[5];
    watched.turns = 0;
    python.set_trace(trace, NULL);
    return 0;
}

/* Turns so far; -1 if the loop has been left. */
PH_EXPORT int64_t phantora_loop_turns(void) { return watched.frame ? (int64_t)watched.turns : -1; }

PH_EXPORT void phantora_forget_loop(void) {
    if (watched.frame) end();
}
