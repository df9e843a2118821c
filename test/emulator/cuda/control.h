/** How a test steers the emulator, and what every function of libcuda does before anything else. */
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "../registry.h"
#include "../emulator.h"
#include "status.h"

namespace emulator {

/** One call at a time, for all threads; a kernel runs to its end under it. */
std::recursive_mutex& lock();

long long setting(const char* key);

/** Adds to one of the figures that `emulator_get` tells. */
void count(const char* key, long long by = 1);

/** Sets one of them. */
void note(const char* key, long long value);

/** The error that a fault of the device left behind: everything answers with it from then on. 0 before. */
int stickyError();
void setStickyError(int status, const std::string& text);

/** What a function needs before it may be called. */
enum class Needs { nothing, init, context };

/** Held for as long as a call lasts. `status` is what the call has to answer with at once, or 0. */
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

/** For what is not allowed on a thread that captures. */
#define ENTER_OUTSIDE_CAPTURE(needs) \
  ENTER(needs);                      \
  if (const int rejected_ = rejectInCapture()) return rejected_

/** Rejects a call that is illegal in a capture, and spoils the captures that it concerns; 0 where there are none. */
int rejectInCapture();

bool isInitialized();
/** The device of the context that is current on this thread; -1 where none is. */
int currentDevice();

}  // namespace emulator
