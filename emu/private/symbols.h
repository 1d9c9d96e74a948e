/* Functions that are private of PyTorch and CPython, by the list that Python reads, too: emu/private/symbols.def. */
#ifndef PH_SYMBOLS_H
#define PH_SYMBOLS_H

#define SYMBOL(id, way, library, name, since, use, lost) PH_SYMBOL_##id,
enum ph_symbol {
#include "symbols.def"
};
#undef SYMBOL

/* The name by which dlsym finds it. */
static inline const char *ph_symbol_name(enum ph_symbol which) {
#define SYMBOL(id, way, library, name, since, use, lost) [PH_SYMBOL_##id] = #name,
    static const char *const names[] = {
#include "symbols.def"
    };
#undef SYMBOL
    return names[which];
}

#endif
