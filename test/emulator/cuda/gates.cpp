/**
 * An mbarrier's state is in its eight bytes: the incomplete phase, the arrivals of a phase, and the missing
 * arrivals and bytes. A copy completes at once, so that a thread that still reads the overwritten bytes is
 * found. If threads run in reverse order, it completes when no thread can continue without it, so that a
 * thread that reads too early is found.
 */
#include "gates.h"

#include <cstring>

#include "memory.h"
#include "status.h"

namespace emulator {

namespace {

constexpr unsigned mostArrivals = (1 << 20) - 1;
constexpr long long maxBytes = (1 << 20) - 1;

struct GateState {
  uint64_t phase : 1, arrivals : 20, missing : 20;
  /** Below zero if bytes arrived before they were expected. */
  int64_t bytes : 21;
  /** `isSet` in an initialised mbarrier; unwritten memory has another value there. */
  uint64_t mark : 2;
};
static_assert(sizeof(GateState) == 8, "a gate has eight bytes");
constexpr uint64_t isSet = 1;

GateState stateOf(const uint64_t* gate) {
  GateState state;
  std::memcpy(&state, gate, sizeof state);
  return state;
}

/** The block whose dynamic shared memory contains the whole range; -1 for none. */
int ownerOf(const Launch& own, const void* address, unsigned bytes) {
  for (unsigned rank = 0; rank < own.blocks.size(); ++rank) {
    const uint64_t place = reinterpret_cast<uint64_t>(address) - own.launchedOf(rank);
    if (place < own.launchedBytes && bytes <= own.launchedBytes - place) return static_cast<int>(rank);
  }
  return -1;
}

/**
 * What arrives at an mbarrier: arrivals, and bytes to expect (or, below zero, arrived bytes). Returns the
 * error, or nullptr.
 */
const char* change(Launch& own, uint64_t* gate, bool isArrival, long long bytes) {
  GateState state = stateOf(gate);
  if (state.mark != isSet) return "a gate that was not set";
  if (isArrival && state.missing == 0) return "more arrivals at a gate than its phase takes";
  const long long left = state.bytes + bytes;
  if (left > maxBytes || left < -maxBytes) return "more bytes at a gate than it can count";
  state.missing -= isArrival ? 1 : 0;
  state.bytes = left;
  const bool isComplete = state.missing == 0 && left == 0;
  if (isComplete) {
    state.phase ^= 1;
    state.missing = state.arrivals;
  }
  std::memcpy(gate, &state, sizeof state);
  if (!isComplete) return nullptr;
  Thread* members = own.threadsOf(static_cast<unsigned>(ownerOf(own, gate, sizeof state)));
  for (unsigned index = 0; index < own.threadCount; ++index) {
    if (members[index].state == State::atGate && members[index].gate == gate) members[index].state = State::ready;
  }
  return nullptr;
}

const char* deliver(Launch& own, const Copy& copy) {
  if (copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
  else copyBox(copy.to, copy.map, copy.corner);
  return change(own, copy.gate, false, -static_cast<long long>(copy.bytes));
}

/** Starts a copy to the block's own dynamic shared memory. */
void begin(const Copy& copy, int line) {
  Launch& own = *launch;
  const int rank = static_cast<int>(copy.rank);
  if (reinterpret_cast<uint64_t>(copy.gate) % 8 != 0) failInLine(misalignedAddress, "a copy at a misaligned address", line);
  if (ownerOf(own, copy.to, copy.bytes) != rank || ownerOf(own, copy.gate, sizeof *copy.gate) != rank) {
    failInLine(illegalAddress, "a copy that does not go to the block's launched memory", line);
  }
  if (own.isReversed) {
    own.copies.push_back(copy);
    return;
  }
  const char* wrong = deliver(own, copy);
  if (wrong) failInLine(launchFailed, wrong, line);
}

void mbarrierInit(uint64_t* gate, unsigned arrivals, int line) {
  if (arrivals == 0 || arrivals > mostArrivals) {
    failInLine(launchFailed, "a gate for " + std::to_string(arrivals) + " arrivals", line);
  }
  GateState state = {0, arrivals, arrivals, 0, isSet};
  std::memcpy(gate, &state, sizeof state);
}

void mbarrierWait(uint64_t* gate, unsigned parity, int line) {
  if (parity > 1) failInLine(launchFailed, "a parity that is neither 0 nor 1", line);
  Thread& thread = launch->threads[launch->running];
  for (;;) {
    const GateState state = stateOf(gate);
    if (state.mark != isSet) failInLine(launchFailed, "a gate that was not set", line);
    if (state.phase != parity) return;
    thread.state = State::atGate;
    thread.gate = gate;
    thread.line = line;
    // Tests again after resuming: the mbarrier may have advanced by another phase, and a late thread
    // continues to wait.
    leaveKernel(thread);
  }
}

}  // namespace

void hookGate(EmulatorGateAct act, unsigned long long* given, unsigned number, int line) {
  auto* gate = reinterpret_cast<uint64_t*>(given);
  const int owner = ownerOf(*launch, gate, sizeof *gate);
  if (reinterpret_cast<uint64_t>(gate) % 8 != 0) failInLine(misalignedAddress, "a gate at a misaligned address", line);
  if (owner < 0) failInLine(illegalAddress, "a gate outside launched memory", line);
  const bool isOwn = owner == static_cast<int>(launch->module->place->rank);
  if (!isOwn && (act == emulatorSetGate || act == emulatorAwaitGate)) {
    failInLine(illegalAddress, "a gate of a peer, which can be passed only", line);
  }
  if (act == emulatorSetGate) return mbarrierInit(gate, number, line);
  if (act == emulatorAwaitGate) return mbarrierWait(gate, number, line);
  const char* wrong = change(*launch, gate, true, number);
  if (wrong) failInLine(launchFailed, wrong, line);
}

void hookBring(void* to, const void* from, unsigned bytes, unsigned long long* gate, int line) {
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes) % 16 != 0) {
    failInLine(misalignedAddress, "a copy at a misaligned address", line);
  }
  if (!holdsDevice(reinterpret_cast<uint64_t>(from), bytes)) {
    failInLine(illegalAddress, "a copy from what is not device memory", line);
  }
  begin({to, from, bytes, reinterpret_cast<uint64_t*>(gate), launch->module->place->rank, {}, {}}, line);
}

void hookBringBox(void* to, const void* given, int column, int row, int matrix, unsigned long long* gate, int line) {
  TensorMap map;
  std::memcpy(&map, given, sizeof map);
  const Corner corner = {column, row, matrix};
  if (const char* wrong = findFaultOf(map)) failInLine(launchFailed, wrong, line);
  // The pattern of swizzled rows starts here.
  if (reinterpret_cast<uint64_t>(to) % 1024 != 0) failInLine(misalignedAddress, "a box at a misaligned address", line);
  if (!holdsBox(map, corner)) failInLine(illegalAddress, "a copy from what is not device memory", line);
  begin({to, nullptr, boxBytesOf(map), reinterpret_cast<uint64_t*>(gate), launch->module->place->rank, map, corner}, line);
}

bool deliverCopy(Launch& own) {
  if (own.copies.empty()) return false;
  const Copy copy = own.copies.back();
  own.copies.pop_back();
  const char* wrong = deliver(own, copy);
  if (wrong) own.fault = {launchFailed, std::string(own.kernel->name) + ": " + wrong};
  return wrong == nullptr;
}

bool hasCopiesFor(const Launch& own, unsigned rank) {
  for (const Copy& copy : own.copies) {
    if (copy.rank == rank) return true;
  }
  return false;
}

std::string describeGate(const uint64_t* gate) {
  const GateState state = stateOf(gate);
  return "lacks " + std::to_string(state.missing) + " of " + std::to_string(state.arrivals) + " arrivals and " +
         std::to_string(state.bytes) + " bytes";
}

}  // namespace emulator
