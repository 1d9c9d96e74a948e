/* Stand-ins for the core of the hook: they remember what the library modules told it. */
#ifndef FAKES_H
#define FAKES_H

#include "channel/channel.h"
#include "core/config.h"
#include "costs/cost.h"
#include "data/data.h"
#include "op_stream/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_record {
    uint16_t kind;
    size_t fields_nbytes, payload_nbytes;
    unsigned char fields[128], payload[4096];
    bool out_of_band;
} fake_record;

extern fake_record fake_records[256];
extern int fake_nrecords;
extern fake_record fake_connects[64]; /* the records CONNECT, which are not among the others */
extern int fake_nconnects;
extern char fake_signatures[64][512]; /* every signature asked for, in order; keys seen before are not asked again */
extern int fake_nsignatures, fake_nlaunches;
extern char fake_refused[64], fake_warned[64]; /* names of the last call that was refused, and of the last warning */
extern enum ph_thread_kind fake_kind;          /* of all threads */
extern bool fake_capturing;
extern int fake_unmodelled_reads;
extern struct ph_COMM fake_memory; /* what communicators are said to take */
extern uint64_t fake_taken, fake_capacity;

/* Device memory: an anonymous mapping; everything else is host memory. */
void *fake_device(size_t nbytes);
void fake_reset(void);
/* Answers COMM_INIT and COMM_SPLIT: the next communicator's id counts from 1. */
extern uint32_t fake_nranks, fake_rank;
/* Ends a capture: launches what was captured `times` times on `stream`. */
void fake_replay(void *stream, int times);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
