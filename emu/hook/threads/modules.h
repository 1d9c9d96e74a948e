/*
 * Which module (torch.nn.Module) of the program the calling thread works for.
 *
 * A thread of the program's is in the innermost module whose call is among its frames. On autograd's threads there are
 * no such frames, unless they recompute: a node belongs to the module in which the forward pass made it. Both know the
 * node by its number, which PyTorch counts on the thread that makes it.
 */
#ifndef PHANTORA_MODULES_H
#define PHANTORA_MODULES_H

#include <stdbool.h>
#include <stdint.h>

/* Are modules told apart? */
extern bool ph_modules_known;
/* The number of the module, or a number of ENUM(OUTSIDE); 0: it is in none. *backward: it is one of autograd's. */
uint16_t ph_module(bool *backward);
/* The next node that the calling thread makes has this number. */
void ph_module_makes(uint64_t node);
/* The calling thread runs the node of this number. */
void ph_module_runs(uint64_t node);

#endif
