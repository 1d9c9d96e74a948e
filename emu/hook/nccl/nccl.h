/*
 * NCCL as far as ProcessGroupNCCL needs it: types (ours, of the public ABI) and what the files share.
 *
 *   nccl.c        the calls on buffers, thin
 *   nccl_comm.c   communicators: ids, creation, splits, end
 *   nccl_group.c  groups: which calls become one launch, and the record of it
 *   nccl_misc.c   memory, registration, reduction operators, versions, texts
 */
#ifndef PHANTORA_NCCL_H
#define PHANTORA_NCCL_H

#include "channel/records.h"
#include "streams/stream.h"

enum { NCCL_OK = 0, NCCL_ERROR_CUDA = 1, NCCL_ERROR_SYSTEM = 2, NCCL_ERROR_ARGUMENT = 4, NCCL_ERROR_USAGE = 5 };
enum { NCCL_SPLIT_NOCOLOR = -1, NCCL_SUM = 0, NCCL_BUILTIN_REDOPS = 5, NCCL_DTYPES = 12 };

typedef struct nccl_unique_id {
    char internal[128];
} nccl_unique_id;

typedef struct nccl_comm {
    uint64_t id; /* the coordinator's, the same on every member; 0 while its group is still open */
    int rank, nranks, device;
    bool dead;
    uint64_t collectives, splits; /* called so far: the seq of the next */
    uint64_t *sent, *received;    /* by peer */
} nccl_comm;

/* One call on buffers. `op` is the part that travels. */
typedef struct nccl_call {
    struct ph_NCCL_OP op;
    nccl_comm *comm;
    ph_stream *stream;
    void *input, *output;
    size_t input_nbytes, output_nbytes; /* of this rank; 0 where it has none (a root's) */
    bool travels;                       /* small enough that bytes are exchanged: the same answer on every member */
    bool deferred;                      /* input pending when the launch was sent */
} nccl_call;

/* nccl_comm.c */
int nccl_comm_jobs_run(void); /* at the end of a group: asks for all communicators that it creates, at once */

/* nccl_group.c */
bool nccl_in_group(void);
int nccl_submit(const nccl_call *call);

/* nccl_misc.c */
size_t nccl_dtype_nbytes(int dtype);
bool nccl_dtype_is_float(int dtype);
bool nccl_redop(int redop, uint32_t *wire, double *scale);

#endif
