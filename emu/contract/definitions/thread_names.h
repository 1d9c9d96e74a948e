/* The names of thread_names.def in C: ph_name_AWAKE and so on. */
#ifndef PHANTORA_THREAD_NAMES_H
#define PHANTORA_THREAD_NAMES_H

#define THREAD(prefix, kind, role, whose)
#define NAME(id, text, about) __attribute__((unused)) static const char ph_name_##id[] = text;
#include "thread_names.def"
#undef THREAD
#undef NAME

#endif
