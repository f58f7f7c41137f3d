/* A driver library of two devices, as far as the hook asks: built by the tests, loaded by the real
 * nvidia-ml-py. The first device knows everything, the second neither its heat nor errors of its
 * memory, as consumers' cards. Once the file named by FAKE_NVML_LOST is there, both are lost. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, LOST = 15 };

struct device { const char *uuid; int is_whole; };
struct memory { unsigned long long total, free, used; };
struct utilization { unsigned int gpu, memory; };

static struct device devices[] = {
    {"GPU-11111111-2222-3333-4444-555555555555", 1},
    {"GPU-99999999-8888-7777-6666-555555555555", 0},
};
static unsigned long long num_asked;

static int state(void) {
    const char *lost = getenv("FAKE_NVML_LOST");
    return lost && access(lost, F_OK) == 0 ? LOST : OK;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return getenv("FAKE_NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) {
    return error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "some error";
}
int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    strncpy(version, "570.00", length);
    return OK;
}
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device) {
    for (int i = 0; i < 2; i++)
        if (!strcmp(uuid, devices[i].uuid)) { *device = &devices[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    if (state()) return state();
    memory->total = 1ULL << 36;
    memory->used = (device->is_whole ? 3ULL << 30 : 1ULL << 30) + num_asked++;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned int *degrees) {
    if (state()) return state();
    *degrees = 71;
    return sensor ? INVALID : device->is_whole ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates) {
    (void)device;
    rates->gpu = 93;
    rates->memory = 40;
    return state();
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons) {
    *reasons = device->is_whole ? 0x20 | 0x4 : 0x4; /* heat beside the power cap; the cap alone */
    return state();
}
int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int since, unsigned long long *n) {
    *n = 2;
    if (!device->is_whole) return NOT_SUPPORTED;
    return kind == 1 && since == 0 ? state() : INVALID;
}
