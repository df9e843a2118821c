/** How a test controls the emulator, and the common start of every function of libcuda. */
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "../registry.h"
#include "../emulator.h"
#include "status.h"

namespace emulator {

/** One call at a time, for all threads; a kernel runs to its end under this lock. */
std::recursive_mutex& lock();

long long setting(const char* key);

/** Adds to a figure that `emulator_get` returns. */
void count(const char* key, long long by = 1);

/** Sets such a figure. */
void note(const char* key, long long value);

/** The sticky error after a fault of the device, which all later calls return. 0 before. */
int stickyError();
void setStickyError(int status, const std::string& text);

/** What a function needs before it can be called. */
enum class Needs { nothing, init, context };

/** Lives for the duration of a call. `status` is the immediate result of the call, or 0. */
class Call {
  std::lock_guard<std::recursive_mutex> hold_;

 public:
  const int status;
  Call(const char* function, Needs needs) : hold_(lock()), status(begin(function, needs)) {}

 private:
  static int begin(const char* function, Needs needs);
};

/** The first line of every function. */
#define ENTER(needs)                            \
  Call call_(__func__, Needs::needs);           \
  if (call_.status != success) return call_.status

/** For calls that are illegal on a capturing thread. */
#define ENTER_OUTSIDE_CAPTURE(needs) \
  ENTER(needs);                      \
  if (const int rejected_ = rejectInCapture()) return rejected_

/** Rejects a call that is illegal in a capture, and invalidates the affected captures; 0 if there are none. */
int rejectInCapture();

bool isInitialized();
/** The device of the current context on this thread; -1 for none. */
int currentDevice();
/** Shared memory of a block that opts in, static and dynamic: by compute capability, as in NVIDIA's tables. */
long long sharedLimit();

}  // namespace emulator
