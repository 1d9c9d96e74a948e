/* Where in the user's program the calling thread is. */
#ifndef PHANTORA_SITES_H
#define PHANTORA_SITES_H

#include <stdint.h>

/* The number of the place in the program where the calling thread is, announced if it is new; 0: nobody can tell. Not
 * under the record lock. */
uint16_t ph_site(void);
/* From now on that is where the calling thread is: it works for another one. */
void ph_site_inherit(uint16_t site);
/* The line of the user's where the calling thread is as `file:line`, "" if nobody can tell. */
const char *ph_python_line(char *text, int capacity);

#endif
