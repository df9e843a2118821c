/**
 * NCCL between processes on one machine, for tests: ranks exchange bytes through shared memory. A collective runs when its stream does, and
 * waits there for the other ranks, so late, lost and hanging ranks act as on a real GPU. As in NCCL, a communicator of one rank copies, and
 * calls of a communicator that does not block are in progress for a while.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../emulator.h"

extern "C" int cuCtxGetCurrent(uint64_t* context);
extern "C" int cuStreamIsCapturing(uint64_t stream, int* status);

namespace {

constexpr int success = 0, unhandledCudaError = 1, systemError = 2, internalError = 3, invalidArgument = 4,
              invalidUsage = 5, inProgress = 7;
constexpr int kernelNode = 0, copyNode = 1, eventRecordNode = 7;
constexpr int illegalAddress = 700;
constexpr int maxRanks = 16;
constexpr size_t slotBytes = 256 << 10;
constexpr size_t elementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/** What a rank does: ranks that do different things wait for ever. */
struct Work {
  char kind[16];
  uint64_t bytes;
  int root;
};

struct Shared {
  std::atomic<int> joined;
  /** How many barriers each rank has reached. */
  std::atomic<uint64_t> reached[maxRanks];
  Work works[maxRanks];
  unsigned char slots[maxRanks][slotBytes];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

struct Communicator {
  Shared* shared;
  char name[64];
  int rank, ranks;
  bool isBlocking;
  std::atomic<bool> isAborted{false};
  std::atomic<int> error{success};
  /** How often the next questions are answered with "in progress". */
  std::atomic<int> pending{0};
  uint64_t barriers = 0;
  long collectives = 0;
};

/** A part of an exchange: bytes for or from a rank. */
struct Part {
  int peer;
  uint64_t memory;
  size_t bytes;
};

struct Call {
  Communicator* communicator;
  Work work;
  uint64_t from, to;
};

thread_local int groupDepth = 0;
thread_local std::vector<Part> groupSends, groupReceives;
thread_local Communicator* groupCommunicator = nullptr;
thread_local uint64_t groupStream = 0;

void waitForAbort(Communicator& own) {
  while (!own.isAborted) usleep(200);
}

/** True when all ranks are there; false if this one was aborted. */
bool reachBarrier(Communicator& own) {
  const uint64_t number = ++own.barriers;
  own.shared->reached[own.rank] = number;
  for (int rank = 0; rank < own.ranks; ++rank) {
    for (int polls = 0; own.shared->reached[rank] < number; ++polls) {
      if (own.isAborted) return false;
      if (polls > 100) usleep(polls > 1000 ? 1000 : 50);
    }
  }
  return true;
}

void addFloats(float* sum, const unsigned char* added, size_t bytes) {
  for (size_t index = 0; index < bytes / sizeof(float); ++index) {
    float value;
    std::memcpy(&value, added + index * sizeof value, sizeof value);
    sum[index] += value;
  }
}

/**
 * Sends a part to each rank and receives one from each, some bytes at a time. `adds`: what is received from the second part on is added, as
 * float32, to what is in its place.
 */
bool exchange(Communicator& own, const std::vector<Part>& sends, const std::vector<Part>& receives, size_t bytes,
              bool adds = false) {
  const size_t chunk = slotBytes / static_cast<size_t>(own.ranks) / sizeof(float) * sizeof(float);
  for (size_t start = 0; start < bytes; start += chunk) {
    const auto count = [&](const Part& part) { return start >= part.bytes ? 0 : std::min(chunk, part.bytes - start); };
    for (const Part& part : sends) {
      std::memcpy(own.shared->slots[own.rank] + part.peer * chunk,
                  reinterpret_cast<const void*>(part.memory + start), count(part));
    }
    if (!reachBarrier(own)) return false;
    for (const Part& part : receives) {
      const unsigned char* received = own.shared->slots[part.peer] + own.rank * chunk;
      if (adds && part.peer != receives[0].peer) {
        addFloats(reinterpret_cast<float*>(part.memory + start), received, count(part));
      } else {
        std::memcpy(reinterpret_cast<void*>(part.memory + start), received, count(part));
      }
    }
    if (!reachBarrier(own)) return false;
  }
  return true;
}

bool doSame(const Communicator& own) {
  for (int rank = 0; rank < own.ranks; ++rank) {
    if (std::memcmp(&own.shared->works[rank], &own.shared->works[own.rank], sizeof(Work)) != 0) return false;
  }
  return true;
}

/** True if all ranks have begun the same work. */
bool begin(Communicator& own, const Work& work) {
  const long number = ++own.collectives;
  if (const long long delay = emulator_get("ncclDelayUs")) usleep(static_cast<useconds_t>(delay));
  if (number == emulator_get("ncclErrorAt")) own.error = internalError;
  if (number == emulator_get("ncclHangAt") || own.error != success) waitForAbort(own);
  own.shared->works[own.rank] = work;
  if (!reachBarrier(own)) return false;
  const bool isSame = doSame(own);
  if (!isSame) waitForAbort(own);
  return isSame && reachBarrier(own);
}

std::vector<Part> partsOf(const Communicator& own, uint64_t memory, size_t bytes, size_t stride) {
  std::vector<Part> parts;
  for (int rank = 0; rank < own.ranks; ++rank) parts.push_back({rank, memory + rank * stride, bytes});
  return parts;
}

int run(const void* data) {
  const Call& call = *static_cast<const Call*>(data);
  Communicator& own = *call.communicator;
  const auto& [kind, bytes, root] = call.work;
  const bool isToAll = std::strcmp(kind, "allToAll") == 0, isBroadcast = std::strcmp(kind, "broadcast") == 0,
             isReduction = std::strcmp(kind, "reduceScatter") == 0;
  const size_t all = bytes * static_cast<size_t>(own.ranks);
  if (!emulator_holds(call.from, isToAll || isReduction ? all : bytes) ||
      !emulator_holds(call.to, isBroadcast || isReduction ? bytes : all)) {
    return illegalAddress;
  }
  if (!begin(own, call.work)) return 0;
  if (isBroadcast) {
    const auto sends = own.rank == root ? partsOf(own, call.from, bytes, 0) : std::vector<Part>();
    exchange(own, sends, {{root, call.to, bytes}}, bytes);
  } else if (isReduction) {
    auto receives = partsOf(own, call.to, bytes, 0);
    // As around a ring, the sum begins with the next rank: each part has another order.
    std::rotate(receives.begin(), receives.begin() + (own.rank + 1) % own.ranks, receives.end());
    exchange(own, partsOf(own, call.from, bytes, bytes), receives, bytes, true);
  } else {
    exchange(own, partsOf(own, call.from, bytes, isToAll ? bytes : 0), partsOf(own, call.to, bytes, bytes), bytes);
  }
  return 0;
}

struct GroupCall {
  Communicator* communicator;
  size_t sends, receives;
  Part parts[2 * maxRanks];
};

int runGroup(const void* data) {
  const GroupCall& call = *static_cast<const GroupCall*>(data);
  const std::vector<Part> sends(call.parts, call.parts + call.sends);
  const std::vector<Part> receives(call.parts + call.sends, call.parts + call.sends + call.receives);
  size_t bytes = 0;
  for (const auto* parts : {&sends, &receives}) {
    for (const Part& part : *parts) {
      if (!emulator_holds(part.memory, part.bytes)) return illegalAddress;
      bytes = std::max(bytes, part.bytes);
    }
  }
  Work work = {"group", bytes, 0};
  if (begin(*call.communicator, work)) exchange(*call.communicator, sends, receives, bytes);
  return 0;
}

struct Copy {
  uint64_t from, to, bytes;
};

int runCopy(const void* data) {
  const Copy& copy = *static_cast<const Copy*>(data);
  if (!emulator_holds(copy.from, copy.bytes) || !emulator_holds(copy.to, copy.bytes)) return illegalAddress;
  std::memmove(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from), copy.bytes);
  return 0;
}

int runNothing(const void*) { return 0; }

Communicator* communicatorOf(uint64_t handle) { return reinterpret_cast<Communicator*>(handle); }

/** As NCCL does: a call before the previous one has completed is an error. */
int checkUse(Communicator* communicator) {
  if (communicator == nullptr) return invalidArgument;
  if (communicator->isAborted) return invalidUsage;
  return communicator->pending > 0 ? invalidArgument : success;
}

int submitted(Communicator& communicator, int status) {
  if (status != 0) return unhandledCudaError;
  if (communicator.isBlocking) return success;
  communicator.pending = static_cast<int>(emulator_get("ncclPolls"));
  return communicator.pending > 0 ? inProgress : success;
}

int enqueue(const char* function, const char* kind, uint64_t from, uint64_t to, size_t count, int type, int root,
            uint64_t handle, uint64_t stream) {
  if (const int planned = emulator_note(function)) return planned;
  Communicator* communicator = communicatorOf(handle);
  if (const int wrong = checkUse(communicator)) return wrong;
  if (type < 0 || type > 9 || root < 0 || root >= communicator->ranks) return invalidArgument;
  const size_t bytes = count * elementBytes[type];
  if (bytes == 0) return success;
  int capturing = 0;
  if (emulator_get("ncclCaptures") == 0 && cuStreamIsCapturing(stream, &capturing) == 0 && capturing != 0) {
    return unhandledCudaError;
  }
  if (communicator->ranks == 1) {
    if (from == to) return success;
    const Copy copy = {from, to, bytes};
    return emulator_submit(stream, copyNode, runCopy, &copy, sizeof copy) == 0 ? success : unhandledCudaError;
  }
  Call call = {communicator, {{}, bytes, root}, from, to};
  std::strncpy(call.work.kind, kind, sizeof call.work.kind - 1);
  // In a capture, NCCL records other nodes too.
  int status = emulator_submit(stream, eventRecordNode, runNothing, nullptr, 0);
  if (status == 0) status = emulator_submit(stream, kernelNode, run, &call, sizeof call);
  return submitted(*communicator, status);
}

}  // namespace

#define NCCL_EXPORT EMULATOR_EXPORT

NCCL_EXPORT int ncclGetVersion(int* version) {
  if (const int planned = emulator_note(__func__)) return planned;
  *version = static_cast<int>(emulator_get("ncclVersion"));
  return success;
}

NCCL_EXPORT const char* ncclGetErrorString(int result) {
  static const char* const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                      "invalid argument", "invalid usage", "remote process exited", "in progress"};
  return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

NCCL_EXPORT const char* ncclGetLastError(uint64_t) { return ""; }

NCCL_EXPORT int ncclGetUniqueId(char* id) {
  if (const int planned = emulator_note(__func__)) return planned;
  static int made = 0;
  std::memset(id, 0, 128);
  std::snprintf(id, 64, "/holdfast-nccl-%d-%d", static_cast<int>(getpid()), ++made);
  const int file = shm_open(id, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) return systemError;
  const int failed = ftruncate(file, sizeof(Shared));
  close(file);
  return failed == 0 ? success : systemError;
}

NCCL_EXPORT int ncclCommInitRankScalable(uint64_t* made, int ranks, int rank, int ids, const char* id,
                                         const Config* config) {
  if (const int planned = emulator_note(__func__)) return planned;
  if (ranks < 1 || ranks > maxRanks || rank < 0 || rank >= ranks || ids != 1) return invalidArgument;
  if (config->size != 48 || config->magic != 0xcafebeef || config->version != 21700) return invalidArgument;
  uint64_t context = 0;
  if (cuCtxGetCurrent(&context) != 0 || context == 0) return unhandledCudaError;
  const int file = shm_open(id, O_RDWR, 0600);
  if (file < 0) return systemError;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return systemError;
  auto* communicator = new Communicator;
  communicator->shared = static_cast<Shared*>(memory);
  std::strncpy(communicator->name, id, sizeof communicator->name - 1);
  communicator->name[sizeof communicator->name - 1] = 0;
  communicator->rank = rank;
  communicator->ranks = ranks;
  communicator->isBlocking = config->blocking != 0;
  if (!communicator->isBlocking) communicator->pending = static_cast<int>(emulator_get("ncclPolls"));
  communicator->shared->joined += 1;
  *made = reinterpret_cast<uint64_t>(communicator);
  if (communicator->isBlocking) {
    while (communicator->shared->joined < ranks) usleep(200);
    return success;
  }
  return inProgress;
}

/** Takes no lock: another thread may ask while this process is in a collective. */
NCCL_EXPORT int ncclCommGetAsyncError(uint64_t handle, int* result) {
  Communicator* communicator = communicatorOf(handle);
  if (communicator == nullptr || result == nullptr) return invalidArgument;
  *result = communicator->error;
  if (*result != success) return success;
  if (communicator->shared->joined < communicator->ranks) *result = inProgress;
  else {
    if (communicator->rank == 0) shm_unlink(communicator->name);
    if (communicator->pending > 0 && --communicator->pending > 0) *result = inProgress;
  }
  return success;
}

NCCL_EXPORT int ncclCommFinalize(uint64_t handle) {
  if (const int planned = emulator_note(__func__)) return planned;
  return checkUse(communicatorOf(handle));
}

/** The memory stays: work that still refers to it ends by itself. */
NCCL_EXPORT int ncclCommDestroy(uint64_t handle) {
  if (const int planned = emulator_note(__func__)) return planned;
  Communicator* communicator = communicatorOf(handle);
  if (const int wrong = checkUse(communicator)) return wrong;
  communicator->isAborted = true;
  return success;
}

/** Takes the lock last: the main thread may hold it in the collective that ends by this. */
NCCL_EXPORT int ncclCommAbort(uint64_t handle) {
  Communicator* communicator = communicatorOf(handle);
  if (communicator == nullptr) return invalidArgument;
  communicator->isAborted = true;
  shm_unlink(communicator->name);
  return emulator_note(__func__);
}

NCCL_EXPORT int ncclGroupStart() {
  if (const int planned = emulator_note(__func__)) return planned;
  groupDepth += 1;
  return success;
}

NCCL_EXPORT int ncclGroupEnd() {
  if (const int planned = emulator_note(__func__)) return planned;
  if (groupDepth == 0) return invalidUsage;
  if (--groupDepth > 0 || groupCommunicator == nullptr) return success;
  GroupCall call = {groupCommunicator, groupSends.size(), groupReceives.size(), {}};
  size_t index = 0;
  for (const auto* parts : {&groupSends, &groupReceives}) {
    for (const Part& part : *parts) call.parts[index++] = part;
  }
  groupSends.clear();
  groupReceives.clear();
  groupCommunicator = nullptr;
  return submitted(*call.communicator, emulator_submit(groupStream, kernelNode, runGroup, &call, sizeof call));
}

namespace {

int addPart(const char* function, std::vector<Part>& parts, const Part& part, uint64_t handle, uint64_t stream) {
  if (const int planned = emulator_note(function)) return planned;
  Communicator* communicator = communicatorOf(handle);
  if (const int wrong = checkUse(communicator)) return wrong;
  if (groupDepth == 0 || parts.size() >= maxRanks || part.peer < 0 || part.peer >= communicator->ranks) return invalidUsage;
  groupCommunicator = communicator;
  groupStream = stream;
  parts.push_back(part);
  return success;
}

}  // namespace

NCCL_EXPORT int ncclSend(uint64_t from, size_t count, int type, int peer, uint64_t handle, uint64_t stream) {
  return addPart(__func__, groupSends, {peer, from, count * elementBytes[type]}, handle, stream);
}

NCCL_EXPORT int ncclRecv(uint64_t to, size_t count, int type, int peer, uint64_t handle, uint64_t stream) {
  return addPart(__func__, groupReceives, {peer, to, count * elementBytes[type]}, handle, stream);
}

NCCL_EXPORT int ncclAllGather(uint64_t from, uint64_t to, size_t count, int type, uint64_t handle, uint64_t stream) {
  return enqueue(__func__, "allGather", from, to, count, type, 0, handle, stream);
}

NCCL_EXPORT int ncclAlltoAll(uint64_t from, uint64_t to, size_t count, int type, uint64_t handle, uint64_t stream) {
  return enqueue(__func__, "allToAll", from, to, count, type, 0, handle, stream);
}

NCCL_EXPORT int ncclReduceScatter(uint64_t from, uint64_t to, size_t countPerRank, int type, int operation,
                                  uint64_t handle, uint64_t stream) {
  constexpr int float32 = 7, sum = 0;
  if (type != float32 || operation != sum) return invalidArgument;
  return enqueue(__func__, "reduceScatter", from, to, countPerRank, type, 0, handle, stream);
}

NCCL_EXPORT int ncclBroadcast(uint64_t from, uint64_t to, size_t count, int type, int root, uint64_t handle,
                              uint64_t stream) {
  return enqueue(__func__, "broadcast", from, to, count, type, root, handle, stream);
}
