/*
 * Functions written in C through which the program's numbers pass: what they return can be replaced.
 *
 * A number that nobody computed is an object of a class of ours (emu/reads/marked.py), and what Python makes of it is
 * one, too. Functions written in C see the plain number in it: `math.exp`, `float`, `torch.tensor`. So their entry in
 * the table of methods that the interpreter calls through is replaced by one of ours, which calls the function and then
 * asks a Python function what the program gets. The objects stay what they are: libraries recognise functions by their
 * identity, torch.compile for example.
 *
 *   reading   a method that reads a value from the device or the host: if that was unknown, its result is replaced
 *   carrying  a function that gets such a number, by itself or in a list: its result is replaced
 *
 * Everything here runs with Python's lock.
 */
#define _GNU_SOURCE
#include "core/base.h"
#include "core/config.h"

#include <dlfcn.h>
#include <string.h>

enum { MOST = 192, MOST_TYPES = 8, MOST_ITEMS = 1 << 20, DEEPEST = 3 };
enum { TYPE = 8, METHOD = 8, FLAGS = 16 }; /* offsets in objects and in a table of methods */
enum { TYPE_NUMBER = 96, TYPE_VECTORCALL = 400, TO_FLOAT = 144, TYPE_BASE = 256 }; /* in types */
enum { VARARGS = 1, KEYWORDS = 2, NOARGS = 4, ONE = 8, FAST = 0x80 };              /* METH_... of CPython */
enum { READING = 1, CARRYING = 2, OF_FLOAT = MOST, JUST_READ = 1 << 16 };

/* Arguments as the table's flags say: (self, args), (self, args, keywords), (self, array, n[, names]) ... */
typedef void *(*function)(void *, void *, void *, void *);
typedef void *(*vectorcall)(void *type, void *const *args, size_t nargs, void *names);
/* Returns what the program gets instead of `result`, which is NULL if the function has failed. `number`: the
 * function's, plus JUST_READ if it has read a value that nobody computed. `first`: the argument that is or has a
 * number which nobody computed, or the object that was read. */
typedef void *(*replacement)(int number, void *result, void *first);

static struct {
    void (*retain)(void *), (*release)(void *), (*fetch)(void **, void **, void **), (*restore)(void *, void *, void *);
    ptrdiff_t (*list_size)(void *), (*tuple_size)(void *);
    void *(*list_item)(void *, ptrdiff_t), *(*tuple_item)(void *, ptrdiff_t);
    int (*dict_next)(void *, ptrdiff_t *, void **, void **);
    void *list, *tuple, *text;
    int (*read_char)(void *, ptrdiff_t);
} python;

static struct {
    struct carrier {
        function original;
        int flags, kind;
    } carriers[MOST];
    int ncarriers;
    void *types[MOST_TYPES];
    int ntypes;
    void *float_type, *tensor_type;
    vectorcall to_float;
    uint32_t saved_as; /* the first character of a text that stands for such a number */
    replacement replace;
    int on_host; /* are there such values in the host's memory? Then each reading is asked about */
} known;

static _Thread_local struct {
    uint64_t unknown; /* values that were read and not computed */
    int carrying;     /* calls that carry numbers and go on */
} here;

static void *type_of(const void *object) { return *(void *const *)((const char *)object + TYPE); }

static bool is_marked(const void *object) {
    void *type = type_of(object);
    for (int i = 0; i < known.ntypes; i++)
        if (known.types[i] == type) return true;
    return false;
}

/* Is the object such a number, or is one in a list or tuple in it? */
static bool has(void *object, int depth) {
    if (!object) return false;
    if (is_marked(object)) return true;
    bool list = type_of(object) == python.list;
    if (depth == DEEPEST || !(list || type_of(object) == python.tuple)) return false;
    ptrdiff_t n = list ? python.list_size(object) : python.tuple_size(object);
    for (ptrdiff_t i = 0; i < n && i < MOST_ITEMS; i++)
        if (has(list ? python.list_item(object, i) : python.tuple_item(object, i), depth + 1)) return true;
    return false;
}

/* The first argument that is or has such a number, or if `any` the first of all; NULL if there is none. */
static void *find_argument(int flags, void *args, void *more, void *names, bool any) {
    void *key, *value;
    ptrdiff_t n = 0, at = 0;
    if (flags & FAST) {
        n = (ptrdiff_t)((size_t)more & ~((size_t)1 << 63));
        if ((flags & KEYWORDS) && names) n += python.tuple_size(names);
    } else if (flags & VARARGS) {
        n = python.tuple_size(args);
    } else if ((flags & ONE) && (any || has(args, 0))) {
        return args;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        value = flags & FAST ? ((void **)args)[i] : python.tuple_item(args, i);
        if (any || has(value, 0)) return value;
    }
    if (!(flags & FAST) && (flags & KEYWORDS) && more)
        while (python.dict_next(more, &at, &key, &value))
            if (any || has(value, 0)) return value;
    return NULL;
}

/* Does not change the error that may be set. */
static void *replaced(int number, void *result, void *first) {
    void *kind, *value, *traceback;
    python.fetch(&kind, &value, &traceback);
    void *instead = known.replace(number, result, first);
    python.restore(kind, value, traceback);
    if (!instead) return result;
    python.release(result ? result : instead);
    return result ? instead : NULL;
}

static void *call(int number, void *self, void *args, void *more, void *names) {
    struct carrier *carrier = &known.carriers[number];
    uint64_t unknown = here.unknown;
    void *first = NULL;
    if (carrier->kind & CARRYING) {
        first = find_argument(carrier->flags, args, more, names, false);
        if (first) python.retain(first);
    }
    here.carrying += (carrier->kind & CARRYING) != 0;
    void *result = carrier->original(self, args, more, names);
    here.carrying -= (carrier->kind & CARRYING) != 0;
    bool just_read = here.unknown != unknown;
    if (first) {
        result = replaced(number, result, first);
        python.release(first);
    } else if (result && (just_read || ((carrier->kind & READING) && known.on_host))) {
        first = carrier->kind & CARRYING ? find_argument(carrier->flags, args, more, names, true) : self;
        result = replaced(number | (just_read ? JUST_READ : 0), result, first ? first : result);
    }
    return result;
}

#define SLOT(n)                                                                                                        \
    static void *slot_##n(void *a, void *b, void *c, void *d) { return call(n - 1000, a, b, c, d); }
#define SLOT_NAME(n) slot_##n,
#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
/* clang-format off */
#define ALL(X)                                                                                                         \
    TEN(X, 100) TEN(X, 101) TEN(X, 102) TEN(X, 103) TEN(X, 104) TEN(X, 105) TEN(X, 106) TEN(X, 107) TEN(X, 108)        \
    TEN(X, 109) TEN(X, 110) TEN(X, 111) TEN(X, 112) TEN(X, 113) TEN(X, 114) TEN(X, 115) TEN(X, 116) TEN(X, 117)        \
    TEN(X, 118) X(1190) X(1191)
/* clang-format on */
ALL(SLOT)
static const function slots[MOST] = {ALL(SLOT_NAME)};

static bool is_tensor(void *type) {
    for (int i = 0; type && i < 8; i++, type = *(void **)((char *)type + TYPE_BASE))
        if (type == known.tensor_type) return true;
    return false;
}

/* `float(x)`: the interpreter makes a plain number of what a class's __float__ returns, or of a number of ours. */
static void *call_float(void *type, void *const *args, size_t nargs, void *names) {
    if ((nargs & ~((size_t)1 << 63)) == 1 && !names && type == known.float_type) {
        void *one = args[0], *its = type_of(one);
        if (is_marked(one) && its != known.types[0]) {
            void *(*convert)(void *) = NULL; /* a number of numpy's, or an array */
            memcpy(&convert, *(char **)((char *)its + TYPE_NUMBER) + TO_FLOAT, sizeof convert);
            if (convert) {
                here.carrying++;
                void *result = convert(one);
                here.carrying--;
                return result ? replaced(OF_FLOAT, result, one) : NULL;
            }
        }
        if (its == known.types[0]) {
            python.retain(one);
            return one;
        }
        if (its == python.text && (uint32_t)python.read_char(one, 0) == known.saved_as) {
            void *result = known.to_float(type, args, nargs, names);
            return result ? replaced(OF_FLOAT, result, one) : NULL;
        }
        if (is_tensor(its)) {
            uint64_t unknown = here.unknown;
            void *result = known.to_float(type, args, nargs, names);
            return result && here.unknown != unknown ? replaced(OF_FLOAT | JUST_READ, result, one) : result;
        }
    }
    return known.to_float(type, args, nargs, names);
}

/* Makes the function with this entry in a table of methods one of these, of this kind. Returns its number; -1 if
 * there are too many. */
PH_EXPORT int phantora_carry(void *method, int kind) {
    if (known.ncarriers == MOST) return -1;
    int number = known.ncarriers++;
    struct carrier *carrier = &known.carriers[number];
    memcpy(&carrier->original, (char *)method + METHOD, sizeof carrier->original);
    memcpy(&carrier->flags, (char *)method + FLAGS, sizeof carrier->flags);
    carrier->kind = kind;
    memcpy((char *)method + METHOD, &slots[number], sizeof slots[number]);
    return number;
}

/* Objects of this type are numbers, or arrays of them, that nobody computed. The first is a subclass of `float`. */
PH_EXPORT int phantora_marked_type(void *type) {
    if (known.ntypes == MOST_TYPES) return -1;
    known.types[known.ntypes++] = type;
    return 0;
}

/* Follows numbers. Called in the forker. Returns 0, or -1 if this interpreter lacks a function. */
PH_EXPORT int phantora_follow_numbers(void *float_type, uint32_t saved_as, replacement replace) {
    const struct {
        void *to;
        const char *name;
    } needed[] = {{&python.retain, "Py_IncRef"},         {&python.release, "Py_DecRef"},
                  {&python.fetch, "PyErr_Fetch"},        {&python.restore, "PyErr_Restore"},
                  {&python.list_size, "PyList_Size"},    {&python.tuple_size, "PyTuple_Size"},
                  {&python.list_item, "PyList_GetItem"}, {&python.tuple_item, "PyTuple_GetItem"},
                  {&python.dict_next, "PyDict_Next"},    {&python.read_char, "PyUnicode_ReadChar"},
                  {&python.list, "PyList_Type"},         {&python.tuple, "PyTuple_Type"},
                  {&python.text, "PyUnicode_Type"}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void *address = dlsym(RTLD_DEFAULT, needed[i].name);
        if (!address) return -1;
        memcpy(needed[i].to, &address, sizeof address);
    }
    known.float_type = float_type;
    known.saved_as = saved_as;
    known.replace = replace;
    char *at = (char *)float_type + TYPE_VECTORCALL;
    vectorcall ours = call_float;
    memcpy(&known.to_float, at, sizeof known.to_float);
    memcpy(at, &ours, sizeof ours);
    return 0;
}

PH_EXPORT void phantora_tensor_type(void *type) { known.tensor_type = type; }

/* The calling thread has read a value that nobody computed. */
PH_EXPORT void phantora_unknown_read(void) { here.unknown++; }
PH_EXPORT int phantora_carrying(void) { return here.carrying; }
PH_EXPORT void phantora_unknown_on_host(int on) { known.on_host = on; }
