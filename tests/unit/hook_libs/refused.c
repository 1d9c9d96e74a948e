/* The refused calls that the tests meet: in the library lists.c makes them all. */
#include "op_stream/warn.h"
int ncclCommShrink(void) { return ph_refuse("ncclCommShrink", 5); }
