/*
 * nccl/: NCCL, as far as ProcessGroupNCCL needs it.
 *
 *   collectives.c  the calls on buffers
 *   comm.c         communicators: ids, creation, splits, end
 *   connections.c  with whom the first messages connect this rank
 *   group.c        groups: which calls become one launch, and its record
 *   members.c      who is in a communicator, as Python has told it
 *   memory.c       what communicators take of a GPU's memory
 *   references.c   what large calls move instead of bytes
 *   symmetric.c    kernels of symmetric memory, which do what collectives do
 *   misc.c         memory, registration, reduction operators, versions, texts of errors
 *
 * Comes in: calls. Goes out: the records NCCL_LAUNCH, NCCL_DATA, CONNECT and COMM_DESTROY; the questions COMM_INIT
 * and COMM_SPLIT; bytes to data/.
 */
#ifndef PHANTORA_NCCL_H
#define PHANTORA_NCCL_H

#include "core/records.h"
#include "streams/stream.h"
#include "streams/watch.h"
#include "threads/thread.h"

enum { NCCL_OK = 0, NCCL_ERROR_CUDA = 1, NCCL_ERROR_SYSTEM = 2, NCCL_ERROR_ARGUMENT = 4, NCCL_ERROR_USAGE = 5 };
enum { NCCL_SPLIT_NOCOLOR = -1, NCCL_SUM = 0, NCCL_BUILTIN_REDOPS = 5, NCCL_DTYPES = 12 };

typedef struct nccl_unique_id {
    char internal[128];
} nccl_unique_id;

typedef struct nccl_comm {
    uint64_t id; /* given by the coordinator, the same on every member; 0 until the group that creates it has ended */
    int rank, nranks, device;
    bool dead;
    ph_watch *watch;              /* NULL: no watchdog looks at its collectives */
    uint64_t collectives, splits; /* numbers of calls so far: the seq of the next one */
    uint64_t *sent, *received;    /* the same for sends and receives, by peer */
    bool unordered;               /* kernels on several streams run side by side: symmetric memory's */
    ph_stream *stream;            /* of its last kernel */
    uint64_t end;                 /* recording behind that kernel; 0 as long as all of its kernels were on one stream */
    _Atomic(ph_thread *) caller;  /* the thread of the program that has called last */
    _Atomic uint32_t turns;       /* how often another thread of the program has called next */
    struct ph_COMM memory;        /* what NCCL takes for it */
    _Atomic uint64_t taken;       /* what it has taken */
    _Atomic uint32_t connected;   /* see memory.c */
    unsigned char *peers;         /* likewise, by peer */
    unsigned char *met;           /* see connections.c; by peer */
} nccl_comm;

/* One call on buffers. `op` is what the record says about it. */
typedef struct nccl_call {
    struct ph_NCCL_OP op;
    nccl_comm *comm;
    ph_stream *stream;
    void *input, *output;
    size_t input_nbytes, output_nbytes; /* of this rank; 0 if it has none, as only a root has */
    bool travels;                       /* bytes are exchanged because they are few: the same on every member */
    bool refers;                        /* too large to travel: references are exchanged */
    bool output_refers;
    bool deferred; /* the input was pending when the record was sent */
    uint32_t part; /* of a send or receive: PH_MESSAGE_OF_GATHER or _OF_SCATTER if it is a part of one; else 0 */
} nccl_call;

/* comm.c */
int nccl_create_communicators(void); /* at the end of a group: creates its communicators, at the same time */

/* members.c */
/* World ranks in the rank order of the communicator; none: Python has not told. */
typedef struct nccl_members {
    uint32_t *ranks, n;
} nccl_members;

nccl_members nccl_copied(const uint32_t *ranks, uint32_t n);
nccl_members nccl_members_of(const nccl_unique_id *id);
nccl_members nccl_members_of_split(void); /* of the calling thread's next split */

/* collectives.c */
/* One call on buffers, whose host time has been charged. Without addresses only its time is followed. */
int nccl_collective(uint32_t op, const void *input, void *output, size_t count, int dtype, int peer, nccl_comm *comm,
                    void *stream);

/* group.c */
bool nccl_in_group(void);
void nccl_forget_end(nccl_comm *comm); /* no kernel of the communicator follows */
void nccl_launches(void);              /* charges the host with a kernel of NCCL */
int nccl_submit(const nccl_call *call);

/* connections.c */
/* Before a group's launch or its capture: tells with whom NCCL connects this rank for it. */
void nccl_connect_peers(const nccl_call *calls, size_t ncalls);

/* memory.c */
/* Take what NCCL allocates, and return its status. */
int nccl_memory_made(nccl_comm *comm);
int nccl_memory_connect(const nccl_call *call);
void nccl_memory_ended(nccl_comm *comm);
const char *nccl_last_error(void);

/* references.c */
void nccl_tell_references(nccl_call *call); /* before the call's record */
void nccl_settle_references(const nccl_call *call);

/* symmetric.c */
/* Gives kernels/ what it calls here. */
void nccl_connect(void);

/* misc.c */
size_t nccl_dtype_nbytes(int dtype);
bool nccl_dtype_is_float(int dtype);
/* Does the call give members what others have, without computing? */
bool nccl_moves(uint32_t op);
bool nccl_redop(int redop, uint32_t *wire, double *scale);

#endif
