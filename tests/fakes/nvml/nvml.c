/* A stand-in for libnvidia-ml.so.1: says what the script in $FAKE_NVML says, which is read again when it has changed.
 *
 * Line by line, the first word says what it is. What stands before the first `gpu` is for all.
 *   driver VERSION             block FUNCTION PATH    writes there first: waits for ever where that file system is frozen
 *   fail FUNCTION CODE         hang FUNCTION          waits until the script does not say so any more
 *   crash FUNCTION             (of a gpu: for that one alone)
 *   gpu UUID                   part UUID              of the gpu before it (MIG); what follows is the part's
 *   name TEXT   total MIB   reserved MIB   busy PERCENT   celsius N   milliwatts N   persistent 0|1   mig 0|1
 *   used MIB | used SECONDS:MIB ...                   a curve from when the script was written, straight between its points
 *   process PID MIB|na [graphics|mps|both]            ecc CORRECTED UNCORRECTED
 *   rows CORRECTED UNCORRECTED PENDING FAILED         fabric STATE STATUS        xid NUMBER    told once
 * NO_V2 and NO_V3, defined when it is compiled, leave out the functions with that ending, as old drivers do.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 64, PROCESSES = 256, RULES = 128, POINTS = 32, XIDS = 256, WORD = 96, LINE = 4096 };
enum { OK, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, OTHER_VERSION = 25 };
enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };
#define MIB (1ull << 20)

struct rule { char kind[8], function[WORD], path[LINE]; int code; };
struct process { unsigned pid; uint64_t bytes; int lists; };
struct gpu {
    char uuid[WORD], name[WORD];
    uint64_t total, reserved;
    double at[POINTS], used[POINTS];
    unsigned points, busy, celsius, milliwatts, persistent, mig, ecc[2], rows[4], fabric[2], xid[XIDS], xids;
    struct process process[PROCESSES];
    unsigned processes, parts, part[GPUS], rules;
    struct rule rule[8];
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct gpu *gpus;          /* whole ones and parts, as they come in the script */
static struct rule rules[RULES];  /* for all */
static unsigned count, rule_count, whole[GPUS], wholes, told[GPUS];
static char driver[WORD];
static struct stat seen;

static void put_rule(struct gpu *gpu, const char *kind, const char *rest) {
    struct rule *rule = gpu ? &gpu->rule[gpu->rules++ % 8] : &rules[rule_count++ % RULES];
    memset(rule, 0, sizeof *rule);
    strcpy(rule->kind, kind);
    sscanf(rest, "%95s %4095s", rule->function, rule->path);
    rule->code = atoi(rule->path);
}

static void put_used(struct gpu *gpu, char *rest) {
    gpu->points = 0;
    for (char *word = strtok(rest, " "); word && gpu->points < POINTS; word = strtok(NULL, " "), gpu->points++)
        if (sscanf(word, "%lf:%lf", &gpu->at[gpu->points], &gpu->used[gpu->points]) != 2) {
            gpu->at[gpu->points] = 0;
            gpu->used[gpu->points] = atof(word);
        }
}

static void put_process(struct gpu *gpu, const char *rest) {
    struct process *one = &gpu->process[gpu->processes++ % PROCESSES];
    char mib[WORD] = "", list[WORD] = "";
    sscanf(rest, "%u %95s %95s", &one->pid, mib, list);
    one->bytes = strcmp(mib, "na") ? strtoull(mib, NULL, 10) * MIB : UINT64_MAX;
    one->lists = !strcmp(list, "graphics") ? GRAPHICS : !strcmp(list, "mps") ? MPS : !strcmp(list, "both") ? 3 : COMPUTE;
}

static struct gpu *put_gpu(const char *kind, const char *uuid) {
    struct gpu *gpu = &gpus[count];
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->uuid, WORD, "%s", uuid);
    if (!strcmp(kind, "gpu"))
        whole[wholes++] = count;
    else if (wholes)
        gpus[whole[wholes - 1]].part[gpus[whole[wholes - 1]].parts++] = count;
    count++;
    return gpu;
}

static void put(struct gpu *gpu, const char *word, char *rest) {
    if (!strcmp(word, "fail") || !strcmp(word, "hang") || !strcmp(word, "block") || !strcmp(word, "crash"))
        put_rule(gpu, word, rest);
    else if (!gpu)
        sscanf(rest, "%95s", driver);
    else if (!strcmp(word, "name"))
        snprintf(gpu->name, WORD, "%s", rest);
    else if (!strcmp(word, "used"))
        put_used(gpu, rest);
    else if (!strcmp(word, "process"))
        put_process(gpu, rest);
    else if (!strcmp(word, "total"))
        gpu->total = strtoull(rest, NULL, 10) * MIB;
    else if (!strcmp(word, "reserved"))
        gpu->reserved = strtoull(rest, NULL, 10) * MIB;
    else if (!strcmp(word, "ecc"))
        sscanf(rest, "%u %u", &gpu->ecc[0], &gpu->ecc[1]);
    else if (!strcmp(word, "rows"))
        sscanf(rest, "%u %u %u %u", &gpu->rows[0], &gpu->rows[1], &gpu->rows[2], &gpu->rows[3]);
    else if (!strcmp(word, "fabric"))
        sscanf(rest, "%u %u", &gpu->fabric[0], &gpu->fabric[1]);
    else if (!strcmp(word, "xid"))
        gpu->xid[gpu->xids++ % XIDS] = atoi(rest);
    else if (!strcmp(word, "busy"))
        gpu->busy = atoi(rest);
    else if (!strcmp(word, "celsius"))
        gpu->celsius = atoi(rest);
    else if (!strcmp(word, "milliwatts"))
        gpu->milliwatts = atoi(rest);
    else if (!strcmp(word, "persistent"))
        gpu->persistent = atoi(rest);
    else if (!strcmp(word, "mig"))
        gpu->mig = atoi(rest);
}

static void read_script(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    char line[LINE], word[WORD];
    struct gpu *gpu = NULL;
    FILE *file;
    if (!gpus)
        gpus = calloc(GPUS, sizeof *gpus);
    if (!path || stat(path, &now) || (now.st_ino == seen.st_ino && !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)))
        return;
    if (!(file = fopen(path, "re")))
        return;
    count = rule_count = wholes = 0;
    while (fgets(line, sizeof line, file)) {
        int end = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%95s %n", word, &end) != 1 || word[0] == '#')
            continue;
        if ((!strcmp(word, "gpu") || !strcmp(word, "part")) && count < GPUS)
            gpu = put_gpu(word, line + end);
        else
            put(gpu, word, line + end);
    }
    fclose(file);
    seen = now;
}

static const struct rule *rule_of(const struct gpu *gpu, const char *function) {
    for (unsigned i = 0; gpu && i < gpu->rules; i++)
        if (!strcmp(gpu->rule[i].function, function))
            return &gpu->rule[i];
    for (unsigned i = 0; i < rule_count; i++)
        if (!strcmp(rules[i].function, function))
            return &rules[i];
    return NULL;
}

/* What each function does first. The turn is not held while it waits. */
static int enter(const struct gpu *gpu, const char *function) {
    for (;;) {
        struct rule rule;
        pthread_mutex_lock(&turn);
        read_script();
        const struct rule *found = rule_of(gpu, function);
        if (found)
            rule = *found;
        pthread_mutex_unlock(&turn);
        if (!found)
            return OK;
        if (!strcmp(rule.kind, "fail"))
            return rule.code;
        if (!strcmp(rule.kind, "crash"))
            raise(SIGSEGV);
        if (!strcmp(rule.kind, "block")) {
            int fd = open(rule.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            (void)!write(fd, "x", 1);
            close(fd);
            return OK;
        }
        usleep(20000);
    }
}
#define ENTER(gpu) do { int code = enter((gpu), __func__); if (code) return code; } while (0)

static uint64_t used_bytes(const struct gpu *gpu) {
    struct timespec now;
    unsigned i = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    double at = now.tv_sec - seen.st_mtim.tv_sec + (now.tv_nsec - seen.st_mtim.tv_nsec) / 1e9;
    if (!gpu->points)
        return 0;
    while (i < gpu->points && gpu->at[i] <= at)
        i++;
    if (i == 0 || i == gpu->points)
        return gpu->used[i ? i - 1 : 0] * MIB;
    double share = (at - gpu->at[i - 1]) / (gpu->at[i] - gpu->at[i - 1]);
    return (gpu->used[i - 1] + share * (gpu->used[i] - gpu->used[i - 1])) * MIB;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return OK; }
int nvmlShutdown(void) { ENTER(NULL); return OK; }
const char *nvmlErrorString(int code) { (void)code; return "a code of the stand-in"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { ENTER(NULL); snprintf(text, size, "%s", driver); return OK; }
int nvmlDeviceGetCount_v2(unsigned *found) { ENTER(NULL); *found = wholes; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
    ENTER(index < wholes ? &gpus[whole[index]] : NULL);
    if (index >= wholes)
        return INVALID_ARGUMENT;
    *gpu = &gpus[whole[index]];
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *text, unsigned size) { ENTER(gpu); snprintf(text, size, "%s", gpu->uuid); return OK; }
int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned size) { ENTER(gpu); snprintf(text, size, "%s", gpu->name); return OK; }

struct memory { uint64_t total, free, used; };
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory) {
    ENTER(gpu);
    uint64_t used = used_bytes(gpu) + gpu->reserved;
    *memory = (struct memory){gpu->total, gpu->total - used, used};
    return OK;
}

#ifndef NO_V2
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct gpu *gpu, struct memory_v2 *memory) {
    ENTER(gpu);
    if (memory->version != 0x02000028)
        return OTHER_VERSION;
    uint64_t used = used_bytes(gpu);
    *memory = (struct memory_v2){memory->version, gpu->total, gpu->reserved, gpu->total - gpu->reserved - used, used};
    return OK;
}
#endif

struct entry_v1 { unsigned pid; uint64_t bytes; };
struct entry { unsigned pid; uint64_t bytes; unsigned part, compute; };
static int list(const struct gpu *gpu, int which, unsigned *room, void *entries, size_t size) {
    unsigned found = 0;
    for (unsigned i = 0; i < gpu->processes; i++) {
        const struct process *one = &gpu->process[i];
        if (!(one->lists & which))
            continue;
        if (entries && found < *room) {
            struct entry_v1 *entry = (void *)((char *)entries + found * size);
            *entry = (struct entry_v1){one->pid, one->bytes};
        }
        found++;
    }
    int code = found > *room ? INSUFFICIENT_SIZE : OK;
    *room = found;
    return code;
}
#define LISTED(name, which, type) \
    int nvmlDeviceGet##name(struct gpu *gpu, unsigned *room, void *entries) { \
        ENTER(gpu); \
        return list(gpu, which, room, entries, sizeof(struct type)); \
    }
LISTED(ComputeRunningProcesses, COMPUTE, entry_v1)
LISTED(GraphicsRunningProcesses, GRAPHICS, entry_v1)
LISTED(MPSComputeRunningProcesses, MPS, entry_v1)
#ifndef NO_V2
LISTED(ComputeRunningProcesses_v2, COMPUTE, entry)
LISTED(GraphicsRunningProcesses_v2, GRAPHICS, entry)
LISTED(MPSComputeRunningProcesses_v2, MPS, entry)
#endif
#ifndef NO_V3
LISTED(ComputeRunningProcesses_v3, COMPUTE, entry)
LISTED(GraphicsRunningProcesses_v3, GRAPHICS, entry)
LISTED(MPSComputeRunningProcesses_v3, MPS, entry)
#endif

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned *rates) { ENTER(gpu); rates[0] = gpu->busy; rates[1] = 0; return OK; }
int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *celsius) { (void)sensor; ENTER(gpu); *celsius = gpu->celsius; return OK; }
int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *milliwatts) { ENTER(gpu); *milliwatts = gpu->milliwatts; return OK; }
int nvmlDeviceGetPersistenceMode(struct gpu *gpu, unsigned *mode) { ENTER(gpu); *mode = gpu->persistent; return OK; }
int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *now, unsigned *later) { ENTER(gpu); *now = *later = gpu->mig; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(struct gpu *gpu, unsigned *most) { ENTER(gpu); *most = gpu->mig ? 7 : 0; return OK; }
int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int kind, int counter, unsigned long long *errors) { (void)counter; ENTER(gpu); *errors = gpu->ecc[kind & 1]; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *gpu, unsigned index, struct gpu **part) {
    ENTER(gpu);
    if (index >= gpu->parts)
        return NOT_FOUND;
    *part = &gpus[gpu->part[index]];
    return OK;
}

int nvmlDeviceGetRemappedRows(struct gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(gpu);
    *corrected = gpu->rows[0], *uncorrected = gpu->rows[1], *pending = gpu->rows[2], *failed = gpu->rows[3];
    return OK;
}

struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
int nvmlDeviceGetGpuFabricInfo(struct gpu *gpu, struct fabric *fabric) { ENTER(gpu); fabric->state = gpu->fabric[0]; fabric->status = gpu->fabric[1]; return OK; }
#ifndef NO_V2
struct fabric_v2 { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned mask; };
int nvmlDeviceGetGpuFabricInfoV(struct gpu *gpu, struct fabric_v2 *fabric) { ENTER(gpu); fabric->state = gpu->fabric[0]; fabric->status = gpu->fabric[1]; return OK; }
#endif

struct event { struct gpu *gpu; unsigned long long kind, data; unsigned part, compute; };
int nvmlEventSetCreate(void **set) { ENTER(NULL); *set = &turn; return OK; }
int nvmlEventSetFree(void *set) { (void)set; ENTER(NULL); return OK; }
int nvmlDeviceGetSupportedEventTypes(struct gpu *gpu, unsigned long long *kinds) { ENTER(gpu); *kinds = 8; return OK; }
int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long kinds, void *set) { (void)kinds; (void)set; ENTER(gpu); return OK; }
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned wait_ms) {
    (void)set, (void)wait_ms;
    ENTER(NULL);
    for (unsigned i = 0; i < count; i++)
        if (told[i] < gpus[i].xids) {
            *event = (struct event){&gpus[i], 8, gpus[i].xid[told[i]++], 0, 0};
            return OK;
        }
    return TIMEOUT;
}
