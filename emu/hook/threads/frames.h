/* Python functions entered. */
#ifndef PHANTORA_FRAMES_H
#define PHANTORA_FRAMES_H

#include <stdint.h>

/* Returns how many functions all threads of this process have entered so far; 0 where they are not counted. */
uint64_t ph_functions_entered(void);

#endif
