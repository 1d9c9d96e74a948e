/*
 * Counts the Python functions that the program enters, on the thread that does: the interpreter's own work.
 *
 * The interpreter offers a function of its choice for evaluating frames (PEP 523); ours counts and passes on. What is
 * asked of the interpreter are four functions that all versions from 3.11 on export, under one of two names.
 * torch.compile sets its own function while compiled code may run, and calls the one that was there before.
 *
 * A function's cost follows from the length of its code, and from whether the thread has run it a moment ago: a loop
 * over a few functions runs from the processor's caches, the long way through a framework does not.
 *
 *   counted    the program's
 *   free       costs nothing itself: functions of the standard library that wait for real things, which run more often
 *              where the machine is slow
 *   aside      nothing below it is the program's work either
 *   ours       the emulator's: free, and so is what it calls of the next class
 *   library    the standard library's, and code made of text (named tuples, dataclasses): counted, unless the emulator
 *              calls it for itself
 */
#define _GNU_SOURCE
#include "threads/frames.h"
#include "core/base.h"
#include "core/config.h"
#include "threads/host.h"
#include "core/run.h"
#include "../private/symbols.h"
#include "threads/python_frames.h"
#include "threads/thread.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*evaluate_function)(void *thread_state, void *frame, int throwing);

/* Properties of CPython and the programs, not of the host: longer functions do not run more of their code. In
 * training steps those of 43 units ran 12 instructions a call, of 87 units 22, of 174 units 39, of 326 units 42. */
enum { MOST_UNITS = 160 };
enum { COUNTED = 1, FREE, ASIDE, OURS, LIBRARY, TEXT = 512, SIZE_OFFSET = 16 };

static struct {
    evaluate_function evaluate;
    int (*get_extra)(void *code, ptrdiff_t index, void **extra);
    int (*set_extra)(void *code, ptrdiff_t index, void *extra);
    void *(*interpreter)(void);
    void (*set)(void *interpreter, evaluate_function);
} python;

static struct {
    ptrdiff_t index; /* of our slot */
    struct rule {
        char *file, *function; /* a file's path up to there, or a part of it after '*'; "" for any function */
        int class;
    } *rules;
    size_t nrules;
    uint32_t ncodes;
    bool seen_one;
    intptr_t fresh; /* instruction of a frame that begins: the same in all frames */
} frames;

static int class_of(uintptr_t code, const char *function) {
    char file[TEXT];
    ph_python_text(ph_code_file(code), file, sizeof file);
    for (size_t i = 0; i < frames.nrules; i++) {
        const struct rule *rule = &frames.rules[i];
        bool here = rule->file[0] == '*' ? strstr(file, rule->file + 1) != NULL
                                         : strncmp(file, rule->file, strlen(rule->file)) == 0;
        if (here && (!rule->function[0] || strcmp(function, rule->function) == 0)) return rule->class;
    }
    return COUNTED;
}

/* Returns a function's length in units, at most MOST_UNITS: most calls of long functions run a part, as they return
 * early, or take one of many branches. */
static uint64_t units_of(uintptr_t code) {
    uint64_t units = (uint64_t)ph_word(code, SIZE_OFFSET);
    return units < MOST_UNITS ? units : MOST_UNITS;
}

/* The facts that are kept of a code object, in the interpreter's slot. */
typedef struct known_code {
    int class;
    uint32_t number; /* in order of first sight */
    bool constructor;
    uint64_t units;
    uint64_t ns[3]; /* by temperature */
} known_code;

/* Places of a function's code and objects, by how much the thread has run since: in the first caches, in the second,
 * further away. */
enum { HOT, WARM, COLD };
static const ph_host_kind frame_kinds[] = {PH_WORK_HOT_FRAME, PH_WORK_WARM_FRAME, PH_WORK_FRAME};
static const ph_host_kind unit_kinds[] = {PH_WORK_HOT_CODE, PH_WORK_WARM_CODE, PH_WORK_CODE};

static uint64_t price(ph_host_kind frame, ph_host_kind unit, uint64_t units) {
    return ph_cfg.host_ns[frame] + units * ph_cfg.host_ns[unit] / 1000;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), nend = strlen(end);
    return n >= nend && strcmp(text + n - nend, end) == 0;
}

static known_code *learn(void *code) {
    known_code *known = malloc(sizeof *known);
    if (!known) ph_die("out of host memory");
    uint64_t units = units_of((uintptr_t)code);
    char function[TEXT];
    ph_python_text(ph_code_function((uintptr_t)code), function, sizeof function);
    *known = (known_code){.class = class_of((uintptr_t)code, function),
                          .number = frames.ncodes++,
                          .constructor = ends_with(function, ".__new__"),
                          .units = units};
    for (int heat = HOT; heat <= COLD; heat++) known->ns[heat] = price(frame_kinds[heat], unit_kinds[heat], units);
    python.set_extra(code, frames.index, known);
    return known;
}

/* An operator or a node calls the function that begins. DTensor's operators call five more than those that they hand
 * tensors to. */
static void called_by_operator(ph_thread *thread) {
    int n = thread->nranges < PH_MAX_RANGES ? thread->nranges : PH_MAX_RANGES;
    enum ph_hands *hands = &thread->hands[n - 1];
    if (*hands == PH_HANDS_TO_NONE) return;
    ph_host_work(PH_WORK_CALLBACK, 1);
    if (*hands == PH_HANDS_BOXED) ph_host_work(PH_WORK_BOXED, 1);
    if (*hands != PH_HANDS_TO_ALL) *hands = PH_HANDS_TO_NONE;
}

static void count(ph_thread *thread, uintptr_t code, uintptr_t frame, const known_code *known) {
    thread->age++;
    uint64_t age = ph_thread_age(thread, &thread->functions, known->number);
    int heat = age <= ph_cfg.hot_within_functions ? HOT : age <= ph_cfg.warm_within_functions ? WARM : COLD;
    if (LIKELY(ph_frame_instruction(frame, code) == frames.fresh)) {
        thread->counts[frame_kinds[heat]]++;
        thread->counts[unit_kinds[heat]] += known->units;
        uint64_t ns = known->ns[heat];
        if (known->constructor) {
            thread->counts[PH_WORK_CONSTRUCTOR]++;
            ns += ph_cfg.host_ns[PH_WORK_CONSTRUCTOR];
        }
        ph_host_frame(thread, ns);
    } else {
        thread->counts[PH_WORK_RESUME]++;
        ph_host_frame(thread, ph_cfg.host_ns[PH_WORK_RESUME]);
    }
    /* Inside of more operators than its caller: no Python function calls it. */
    if (UNLIKELY(thread->ndispatched > thread->frame_dispatched)) called_by_operator(thread);
}

static void *evaluate_counted(ph_thread *thread, void *thread_state, void *frame, int throwing) {
    int around = thread->frame_dispatched;
    bool serves_us = thread->serves_us;
    thread->frame_dispatched = thread->ndispatched;
    thread->serves_us = false;
    void *result = python.evaluate(thread_state, frame, throwing);
    thread->frame_dispatched = around;
    thread->serves_us = serves_us;
    return result;
}

static void *evaluate_ours(ph_thread *thread, void *thread_state, void *frame, int throwing) {
    bool around = thread->serves_us;
    thread->serves_us = true;
    void *result = python.evaluate(thread_state, frame, throwing);
    thread->serves_us = around;
    return result;
}

static void *evaluate_aside(ph_thread *thread, void *thread_state, void *frame, int throwing) {
    ph_host_aside_begins(thread);
    void *result = python.evaluate(thread_state, frame, throwing);
    ph_host_aside_ends(thread);
    return result;
}

static atomic_uint_fast64_t entered; /* changes only with Python's lock */

uint64_t ph_functions_entered(void) { return atomic_load_explicit(&entered, memory_order_relaxed); }

static void *evaluate(void *thread_state, void *frame, int throwing) {
    ph_thread *thread = ph_self();
    atomic_store_explicit(&entered, ph_functions_entered() + 1, memory_order_relaxed);
    if (LIKELY(!thread->aside)) {
        void *code = (void *)ph_frame_code((uintptr_t)frame), *extra = NULL;
        python.get_extra(code, frames.index, &extra);
        if (UNLIKELY(!frames.seen_one)) { /* a frame that begins: there is no older one that could go on */
            frames.seen_one = true;
            frames.fresh = ph_frame_instruction((uintptr_t)frame, (uintptr_t)code);
        }
        const known_code *known = LIKELY(extra != NULL) ? extra : learn(code);
        if (LIKELY(known->class == COUNTED) || (known->class == LIBRARY && !thread->serves_us)) {
            count(thread, (uintptr_t)code, (uintptr_t)frame, known);
            return evaluate_counted(thread, thread_state, frame, throwing);
        }
        if (known->class == OURS) return evaluate_ours(thread, thread_state, frame, throwing);
        if (known->class == ASIDE) return evaluate_aside(thread, thread_state, frame, throwing);
    }
    return python.evaluate(thread_state, frame, throwing);
}

static void *either(const char *name, const char *former) {
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : dlsym(RTLD_DEFAULT, former);
}

/* Functions of files that begin with `file` (or contain what follows its '*') are of this class, by its number above.
 * The first rule wins. */
PH_EXPORT int phantora_frame_rule(const char *file, const char *function, int class) {
    struct rule *rules = realloc(frames.rules, (frames.nrules + 1) * sizeof *rules);
    if (!rules) return -1;
    frames.rules = rules;
    rules[frames.nrules++] = (struct rule){strdup(file), strdup(function), class};
    return 0;
}

/* The calling thread did as much as this number of Python functions of this length, run a moment before, which were not
 * counted: work that one rank does for all. */
PH_EXPORT void phantora_python_work(uint64_t functions, uint64_t units) {
    ph_thread *thread = ph_self();
    thread->counts[PH_WORK_HOT_FRAME] += functions;
    thread->counts[PH_WORK_HOT_CODE] += functions * units;
    ph_host_frame(thread, functions * price(PH_WORK_HOT_FRAME, PH_WORK_HOT_CODE, units));
}

/* While off, nothing is counted: for measuring what counting takes. With Python's lock. */
PH_EXPORT void phantora_frames_on(int on) {
    if (python.set) python.set(python.interpreter(), on ? evaluate : python.evaluate);
}

/* Counts Python functions from now on. Called in the forker, with the offsets of emu/interpreter/frame_layout.py,
 * after the rules. Returns 0, or -1 if this interpreter lacks what is needed: then the interpreter's own work costs
 * nothing. */
PH_EXPORT int phantora_count_frames(const int32_t *offsets) {
    ptrdiff_t (*request)(void (*)(void *)) = NULL;
    const struct {
        void *to;
        const char *name, *former;
    } needed[] = {{&python.evaluate, ph_symbol_name(PH_SYMBOL_EVALUATE_FRAME), ""},
                  {&python.get_extra, "PyUnstable_Code_GetExtra", "_PyCode_GetExtra"},
                  {&python.set_extra, "PyUnstable_Code_SetExtra", "_PyCode_SetExtra"},
                  {&request, "PyUnstable_Eval_RequestCodeExtraIndex", "_PyEval_RequestCodeExtraIndex"},
                  {&python.interpreter, "PyInterpreterState_Get", ""},
                  {&python.set, ph_symbol_name(PH_SYMBOL_SET_EVALUATE_FRAME), ""}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void *address = either(needed[i].name, needed[i].former);
        if (!address) return -1;
        memcpy(needed[i].to, &address, sizeof address);
    }
    if (!ph_frames_readable(offsets)) return -1;
    frames.index = request(free);
    if (frames.index < 0) return -1;
    python.set(python.interpreter(), evaluate);
    return 0;
}
