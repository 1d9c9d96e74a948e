/* Host functions in a stream (cudaLaunchHostFunc, cudaStreamAddCallback). */
#ifndef PHANTORA_HOST_FUNCTION_H
#define PHANTORA_HOST_FUNCTION_H

#include "streams/stream.h"

int ph_host_function_launch(ph_stream *stream, void (*function)(void *), void *arg);
void ph_host_function(ph_stream *stream, void (*function)(void *),
                      void *arg); /* whether or not the stream is being captured */
void ph_host_functions_wait(void);

/* Gives data/ what it calls here. */
void ph_streams_connect(void);

#endif
