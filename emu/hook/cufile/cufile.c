/* cufile/: cuFile (GPUDirect Storage). Every call says that the platform does not support it, as on most machines. */
#include "core/base.h"
#include "op_stream/warn.h"

#include <errno.h>
#include <sys/types.h>

enum { CU_FILE_PLATFORM_NOT_SUPPORTED = 5007 };

/* Returned in one register pair: the library's error, then the driver's. */
typedef struct cufile_error {
    int error, driver;
} cufile_error;

static cufile_error refuse(const char *name) {
    return (cufile_error){ph_refuse(name, CU_FILE_PLATFORM_NOT_SUPPORTED), 0};
}

PH_EXPORT cufile_error cuFileHandleRegister(void **handle, void *description) {
    (void)description;
    if (handle) *handle = NULL;
    return refuse("cuFileHandleRegister");
}

PH_EXPORT void cuFileHandleDeregister(void *handle) { (void)handle; }

PH_EXPORT cufile_error cuFileBufRegister(const void *buffer, size_t nbytes, int flags) {
    (void)buffer, (void)nbytes, (void)flags;
    return refuse("cuFileBufRegister");
}

PH_EXPORT cufile_error cuFileBufDeregister(const void *buffer) {
    (void)buffer;
    return refuse("cuFileBufDeregister");
}

static ssize_t refuse_transfer(const char *name) {
    ph_refuse(name, 0);
    errno = EOPNOTSUPP;
    return -1;
}

PH_EXPORT ssize_t cuFileRead(void *handle, void *buffer, size_t nbytes, off_t file_offset, off_t buffer_offset) {
    (void)handle, (void)buffer, (void)nbytes, (void)file_offset, (void)buffer_offset;
    return refuse_transfer("cuFileRead");
}

PH_EXPORT ssize_t cuFileWrite(void *handle, const void *buffer, size_t nbytes, off_t file_offset, off_t buffer_offset) {
    (void)handle, (void)buffer, (void)nbytes, (void)file_offset, (void)buffer_offset;
    return refuse_transfer("cuFileWrite");
}
