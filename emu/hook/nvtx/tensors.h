/*
 * The tensors of the CPU that an operator takes, as PyTorch's ranges have them.
 *
 * A range has the operator's arguments as c10::IValues. Where it keeps them, and where a tensor keeps what tells its
 * device, is private: both are found once, by operators on tensors that are known (emu/interpreter/tensor_work.py).
 */
#ifndef PHANTORA_TENSORS_H
#define PHANTORA_TENSORS_H

#include "core/base.h"

enum { PH_MAX_TENSOR_ARGUMENTS = 12 };

/* An argument: a tensor, or a list of tensors. */
typedef struct ph_tensor_argument {
    uint64_t count, nbytes; /* elements, bytes; of all tensors of a list */
    uint32_t itemsize;
    int32_t dtype;        /* c10::ScalarType; of the last tensor */
    const int64_t *sizes; /* of a tensor alone */
    int64_t ndim;
} ph_tensor_argument;

enum { PH_DTYPE_HALF = 5, PH_DTYPE_DOUBLE = 7, PH_DTYPE_BFLOAT16 = 15 };

/* Are operators looked at on this thread, to find what is private? */
extern _Thread_local bool ph_tensors_are_sought;
void ph_tensors_look(const char *name, const void *range);
/* Finds PyTorch's own functions in the library that defines ranges; without them no tensor is ever seen. */
void ph_tensors_functions(void *library);
/* Is it known where a range has its arguments? */
bool ph_tensors_known(void);
/* Puts in the arguments of a range, those that are no tensors as zeros. Returns their number; 0 if the operator works
 * on no tensor of the CPU, or on some other tensor as well. */
int ph_tensors_of(const void *range, ph_tensor_argument arguments[PH_MAX_TENSOR_ARGUMENTS]);
/* True if the operator writes to the tensor that is its last argument: `out=` was given. */
bool ph_tensors_out(const void *range);
/* Returns the product of the integers of a list that is the range's argument of this index; 0 if it is none. */
uint64_t ph_tensors_integers(const void *range, int index);

#endif
