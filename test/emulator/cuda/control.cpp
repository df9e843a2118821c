/**
 * Settings, injected failures and counts: `emulator_set`, `emulator_fail`, `emulator_calls`, `emulator_get`,
 * `emulator_reset`. Settings can also come from the environment, as EMULATOR_GPU="key=value,key=value".
 */
#include "control.h"

#include <cstdlib>
#include <cstring>
#include <map>

#include "memory.h"
#include "module.h"
#include "stream.h"

namespace emulator {

namespace {

const std::map<std::string, long long> defaults = {
    {"devices", 1},
    {"computeMajor", 9},
    {"computeMinor", 0},
    {"multiprocessors", 16},
    {"integrated", 0},
    {"driverVersion", 13000},
    // 0: the device reports no virtual memory API, and rejects it.
    {"virtualMemory", 1},
    // 0: the device reports the API, and rejects to map.
    {"canMap", 1},
    {"totalMemory", 4LL << 30},
    // Bytes that another process holds.
    {"foreignMemory", 0},
    // 1: work waits in its stream until a call synchronizes, queries, or waits for it.
    {"deferred", 0},
    // 1: a failing launch returns the error itself, instead of the next call.
    {"blocking", 0},
    // 1: blocks and threads run from the last to the first.
    {"reversed", 0},
    // 1: before its wait, a PDL launch reads memory from before the preceding kernel.
    {"early", 0},
    // If not 0, all calls that need a context return this, as after a fault.
    {"stickyError", 0},
    // cuBLASLt: 1 returns no algorithm; the workspace of an algorithm; the nodes of a GEMM; the number of
    // algorithms, each with 1 KiB more than the one before; 1 gives each its own split of K; the algorithm
    // that is listed and can't be used.
    {"gemmsRejected", 0},
    {"gemmWorkspace", 0},
    {"gemmNodes", 1},
    {"gemmAlgorithms", 3},
    {"cublasLtVersion", 130000},
    {"gemmsDiffer", 0},
    {"gemmUnsound", -1},
    // NCCL: 22809 is 2.28.9; how often a call is in progress; the time by which every collective is late; the
    // number of the collective in which this process hangs, or fails without an answer to the call, 0: none; whether
    // collectives can be captured.
    {"ncclVersion", 22809},
    {"ncclPolls", 3},
    {"ncclDelayUs", 0},
    {"ncclHangAt", 0},
    {"ncclErrorAt", 0},
    {"ncclCaptures", 1},
};

struct Plan {
  int status;
  long after;
  /** Below 0: no limit. */
  long times;
};

struct Control {
  std::map<std::string, long long> settings = defaults;
  std::map<std::string, long long> figures;
  std::unordered_map<std::string, long> calls;
  std::unordered_map<std::string, Plan> plans;
  std::string faultText;

  Control() {
    const char* given = std::getenv("EMULATOR_GPU");
    std::string text = given ? given : "";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      const std::string pair = text.substr(at, end - at);
      const size_t equals = pair.find('=');
      if (equals != std::string::npos && settings.count(pair.substr(0, equals))) {
        settings[pair.substr(0, equals)] = std::atoll(pair.c_str() + equals + 1);
      }
      at = end + 1;
    }
  }
};

Control& control() {
  static Control instance;
  return instance;
}

/** Tests treat "cuMemAlloc_v2" and "cuMemAlloc" as the same function. */
std::string plainName(const char* function) {
  std::string name = function;
  const size_t mark = name.rfind("_v");
  if (mark != std::string::npos && mark + 3 == name.size()) name.resize(mark);
  return name;
}

}  // namespace

std::recursive_mutex& lock() {
  static std::recursive_mutex instance;
  return instance;
}

long long setting(const char* key) { return control().settings.at(key); }

void count(const char* key, long long by) { control().figures[key] += by; }

void note(const char* key, long long value) { control().figures[key] = value; }

int stickyError() { return static_cast<int>(setting("stickyError")); }

void setStickyError(int status, const std::string& text) {
  if (stickyError() != success) return;
  control().settings["stickyError"] = status;
  control().faultText = text;
}

int Call::begin(const char* function, Needs needs) {
  if (const int planned = emulator_note(function)) return planned;
  if (needs == Needs::nothing) return success;
  if (!isInitialized()) return notInitialized;
  if (needs == Needs::init) return success;
  if (const int sticky = stickyError()) return sticky;
  return currentDevice() < 0 ? invalidContext : success;
}

}  // namespace emulator

using namespace emulator;

int emulator_note(const char* function) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  const std::string name = plainName(function);
  control().calls[name] += 1;
  const auto found = control().plans.find(name);
  if (found == control().plans.end()) return success;
  Plan& plan = found->second;
  if (plan.after > 0) {
    plan.after -= 1;
    return success;
  }
  const int status = plan.status;
  if (plan.times > 0 && --plan.times == 0) control().plans.erase(found);
  return status;
}

long long emulator_get(const char* key) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  const std::string name = key;
  if (name == "usedMemory") return static_cast<long long>(usedMemory());
  if (name == "reservations") return static_cast<long long>(reservationCount());
  if (name == "allocations") return static_cast<long long>(allocationCount());
  if (name == "hostAllocations") return static_cast<long long>(hostAllocationCount());
  if (name == "streams") return static_cast<long long>(streamCount());
  if (name == "events") return static_cast<long long>(eventCount());
  if (name == "graphs") return static_cast<long long>(graphCount());
  if (name == "executables") return static_cast<long long>(executableCount());
  if (name == "modules") return static_cast<long long>(moduleCount());
  const auto found = control().settings.find(name);
  if (found != control().settings.end()) return found->second;
  const auto figure = control().figures.find(name);
  if (figure != control().figures.end()) return figure->second;
  return name.rfind("captures.", 0) == 0 ? 0 : -1;
}

/** 0, or 1 if the setting is unknown. */
EMULATOR_EXPORT int emulator_set(const char* key, long long value) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  const auto found = control().settings.find(key);
  if (found == control().settings.end()) return 1;
  found->second = value;
  return 0;
}

/** After `after` more calls, `times` calls of the function return `status`; all of them if `times` is below 0. */
EMULATOR_EXPORT void emulator_fail(const char* function, int status, int after, int times) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  if (times == 0) control().plans.erase(plainName(function));
  else control().plans[plainName(function)] = {status, after, times};
}

EMULATOR_EXPORT long long emulator_calls(const char* function) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  const auto found = control().calls.find(plainName(function));
  return found == control().calls.end() ? 0 : found->second;
}

/** The text of the last fault of a kernel; empty before the first. */
EMULATOR_EXPORT const char* emulator_fault() { return control().faultText.c_str(); }

/** Resets everything except held resources: settings, injected failures, counts, faults and captures. */
EMULATOR_EXPORT void emulator_reset() {
  std::lock_guard<std::recursive_mutex> hold(lock());
  dropCaptures();
  control() = Control();
}
