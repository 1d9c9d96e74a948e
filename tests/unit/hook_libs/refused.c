/* The refused calls that the tests meet: in the library lists.c makes them all. */
#include "core/warn.h"
int ncclCommShrink(void) { return ph_refuse("ncclCommShrink", 5); }
