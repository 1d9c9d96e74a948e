/* The time that an operator takes on tensors of the CPU, by their bytes, its kind and the threads that share it. */
#ifndef PHANTORA_TENSOR_WORK_H
#define PHANTORA_TENSOR_WORK_H

#include "core/base.h"
#include "threads/thread.h"

struct ph_known_op;
typedef struct ph_tensor_op ph_tensor_op;

/* The operator of tensor_ops.def with this name; NULL if it is not there. */
const ph_tensor_op *ph_tensor_op_of(const char *name);
/* The calling thread runs this operator, whose range it has pushed: charges for its work on tensors. */
void ph_tensor_work(ph_thread *thread, const struct ph_known_op *op, const void *range);

#endif
