/**
 * A block's threads: one after the other where none waits for another, else as fibers that take turns. Threads that
 * wait at a barrier which others never reach end the launch, and so does whatever the processor refuses, instead of
 * this process.
 */
#include "block.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "control.h"
#include "fiber.h"

namespace standin {

namespace {

constexpr unsigned warpSize = 32;

enum class State { ready, atBarrier, inExchange, done };

struct Thread {
  void* stackPointer;
  State state;
  /** Of the barrier at which it waits. */
  int line;
  /** What it brings to an exchange, and what it takes from it. */
  StandinExchange kind;
  unsigned mask;
  unsigned long long brought;
  unsigned long long carried;
  unsigned long long votes;
};

/** The launch that runs on this thread. */
struct Launch {
  const StandinModule* module;
  const StandinKernel* kernel;
  void** arguments;
  unsigned blocks;
  unsigned threadCount;
  bool isReversed;
  std::vector<Thread> threads;
  /** Which thread runs; all of them, one after the other, where none waits. */
  unsigned running = 0;
  void* scheduler = nullptr;
  int signal = 0;
  void* signalAddress = nullptr;
  Fault fault;
};

Stacks stacks;
thread_local Launch* launch = nullptr;
/** Is a kernel's code running on this thread, so that a signal is its fault? */
thread_local volatile bool isInKernel = false;

void leaveKernel(void** stackPointer) {
  isInKernel = false;
  standin_switch(stackPointer, launch->scheduler);
  isInKernel = true;
}

[[noreturn]] void fail(int status, const std::string& what) {
  isInKernel = false;
  const StandinPlace& place = *launch->module->place;
  launch->fault.status = status;
  launch->fault.text = std::string(launch->kernel->name) + ": " + what + ", block " + std::to_string(place.block.x) +
                       ", thread " + std::to_string(place.thread.x);
  void* forgotten;
  standin_switch(&forgotten, launch->scheduler);
  __builtin_unreachable();
}

// What a kernel asks for.

void hookBarrier(int line) {
  Thread& thread = launch->threads[launch->running];
  thread.state = State::atBarrier;
  thread.line = line;
  leaveKernel(&thread.stackPointer);
}

unsigned long long hookExchange(StandinExchange kind, unsigned mask, unsigned long long value, unsigned source) {
  const unsigned self = launch->running;
  Thread& thread = launch->threads[self];
  if ((mask >> self % warpSize & 1) == 0) fail(launchFailed, "a thread that is not in its own mask");
  thread.state = State::inExchange;
  thread.kind = kind;
  thread.mask = mask;
  thread.brought = value;
  leaveKernel(&thread.stackPointer);
  if (kind != standinShuffle) return thread.votes;
  // What a thread outside the mask brings is undefined: something that nobody takes for a result.
  if (source >= warpSize || (mask >> source & 1) == 0) return ~0ull;
  return launch->threads[self / warpSize * warpSize + source].carried;
}

void hookFault(int status, const char* what, int line) { fail(status, what + (" in line " + std::to_string(line))); }

// Signals.

struct sigaction earlierActions[64];

/** Where a kernel's code goes on after a signal. */
[[noreturn]] void failBySignal() {
  const int number = launch->signal;
  if (number == SIGILL) fail(illegalInstruction, "an illegal instruction");
  if (number == SIGFPE) fail(launchFailed, "a division by zero");
  char address[32];
  std::snprintf(address, sizeof address, "%p", launch->signalAddress);
  fail(illegalAddress, std::string("an access at ") + address);
}

/** Lets the interrupted code go on in `failBySignal`, as if it had called it. */
void divert(ucontext_t& context) {
  const auto target = reinterpret_cast<uint64_t>(&failBySignal);
#if defined(__x86_64__)
  auto& registers = context.uc_mcontext.gregs;
  // Behind what a function may use below its stack pointer, and aligned as a call leaves it.
  const uint64_t stack = ((static_cast<uint64_t>(registers[REG_RSP]) - 256) & ~15ull) - 8;
  registers[REG_RSP] = static_cast<greg_t>(stack);
  registers[REG_RIP] = static_cast<greg_t>(target);
#else
  context.uc_mcontext.sp = (context.uc_mcontext.sp - 256) & ~15ull;
  context.uc_mcontext.pc = target;
#endif
}

/** Returns, whoever's the signal is: what the system changed for the handler, it has to change back. */
void onSignal(int number, siginfo_t* info, void* context) {
  if (isInKernel) {
    isInKernel = false;
    launch->signal = number;
    launch->signalAddress = info->si_addr;
    return divert(*static_cast<ucontext_t*>(context));
  }
  const struct sigaction& earlier = earlierActions[number];
  if (earlier.sa_flags & SA_SIGINFO) return earlier.sa_sigaction(number, info, context);
  if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) return earlier.sa_handler(number);
  // Nobody's: let the system do what it does.
  sigaction(number, &earlier, nullptr);
}

void catchSignals() {
  static bool isDone = false;
  if (isDone) return;
  isDone = true;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action = {};
    action.sa_sigaction = onSignal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(number, &action, &earlierActions[number]);
  }
}

// Threads.

void startThread() {
  Launch& own = *launch;
  const unsigned self = own.running;
  isInKernel = true;
  own.kernel->run(own.arguments, self, self + 1);
  isInKernel = false;
  own.threads[self].state = State::done;
  void* forgotten;
  standin_switch(&forgotten, own.scheduler);
}

void startBlock(Launch& own, unsigned index) {
  own.module->place->block.x = own.isReversed ? own.blocks - 1 - index : index;
  // NaN in every format: whoever reads what no thread of this block has written sees it.
  std::memset(own.module->sharedStart, 0xff, static_cast<size_t>(own.module->sharedEnd - own.module->sharedStart));
}

void startPlainBlocks() {
  Launch& own = *launch;
  isInKernel = true;
  for (unsigned index = 0; index < own.blocks; ++index) {
    startBlock(own, index);
    if (!own.isReversed) own.kernel->run(own.arguments, 0, own.threadCount);
    else for (unsigned thread = own.threadCount; thread-- > 0;) own.kernel->run(own.arguments, thread, thread + 1);
  }
  isInKernel = false;
  void* forgotten;
  standin_switch(&forgotten, own.scheduler);
}

void resume(Launch& own, unsigned index) {
  own.running = index;
  own.module->place->thread.x = index;
  standin_switch(&own.scheduler, own.threads[index].stackPointer);
}

/** Lets the threads go on whose exchange is complete; false where there is none. */
bool completeExchanges(Launch& own, unsigned first, unsigned end) {
  bool isAny = false;
  for (unsigned index = first; index < end; ++index) {
    if (own.threads[index].state != State::inExchange) continue;
    const unsigned mask = own.threads[index].mask;
    const StandinExchange kind = own.threads[index].kind;
    bool isComplete = true;
    unsigned long long votes = 0;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      const unsigned other = first + lane;
      isComplete = other < end && own.threads[other].state == State::inExchange && own.threads[other].mask == mask &&
                   own.threads[other].kind == kind;
      if (!isComplete) break;
      votes |= static_cast<unsigned long long>(own.threads[other].brought != 0) << lane;
    }
    if (!isComplete) continue;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Thread& member = own.threads[first + lane];
      member.carried = member.brought;
      member.votes = votes;
      member.state = State::ready;
    }
    isAny = true;
  }
  return isAny;
}

/** Runs a warp until each of its threads has ended or waits for the block. */
void runWarp(Launch& own, unsigned first, unsigned end) {
  do {
    for (unsigned step = 0; step < end - first; ++step) {
      const unsigned index = own.isReversed ? end - 1 - step : first + step;
      if (own.threads[index].state != State::ready) continue;
      resume(own, index);
      if (own.fault.status != success) return;
    }
  } while (completeExchanges(own, first, end));
  for (unsigned index = first; index < end; ++index) {
    if (own.threads[index].state != State::inExchange) continue;
    own.fault = {launchFailed, std::string(own.kernel->name) + ": threads of a warp wait for others that don't come"};
    return;
  }
}

/** After every thread has run as far as it could: lets them pass the barrier. False when all have ended. */
bool passBarrier(Launch& own) {
  unsigned waiting = 0;
  bool isSameLine = true;
  for (const Thread& thread : own.threads) {
    if (thread.state != State::atBarrier) continue;
    waiting += 1;
    isSameLine = isSameLine && thread.line == own.threads[0].line;
  }
  if (waiting == 0) return false;
  if (waiting < own.threadCount || !isSameLine) {
    own.fault = {launchFailed, std::string(own.kernel->name) + ": " + std::to_string(waiting) + " of " +
                                   std::to_string(own.threadCount) + " threads wait at a barrier" +
                                   (waiting < own.threadCount ? "" : ", and not all at the same")};
    return false;
  }
  for (Thread& thread : own.threads) thread.state = State::ready;
  return true;
}

void runBlock(Launch& own, unsigned block) {
  startBlock(own, block);
  for (unsigned index = 0; index < own.threadCount; ++index) {
    own.threads[index] = {};
    own.threads[index].stackPointer = prepareFiber(stacks.top(index), startThread);
  }
  do {
    const unsigned warps = (own.threadCount + warpSize - 1) / warpSize;
    for (unsigned step = 0; step < warps && own.fault.status == success; ++step) {
      const unsigned first = (own.isReversed ? warps - 1 - step : step) * warpSize;
      runWarp(own, first, std::min(first + warpSize, own.threadCount));
    }
  } while (own.fault.status == success && passBarrier(own));
}

}  // namespace

Fault runGrid(const StandinModule& module, const StandinKernel& kernel, unsigned blocks, unsigned threads,
              void** arguments) {
  catchSignals();
  *module.hooks = {hookBarrier, hookExchange, hookFault};
  *module.place = {{0, 0, 0}, {0, 0, 0}, {threads, 1, 1}, {blocks, 1, 1}};
  Launch own;
  own.module = &module;
  own.kernel = &kernel;
  own.arguments = arguments;
  own.blocks = blocks;
  own.threadCount = threads;
  own.isReversed = setting("reversed") != 0;
  launch = &own;
  if (kernel.isCooperative) {
    own.threads.resize(threads);
    for (unsigned block = 0; block < blocks && own.fault.status == success; ++block) runBlock(own, block);
  } else {
    standin_switch(&own.scheduler, prepareFiber(stacks.top(0), startPlainBlocks));
  }
  launch = nullptr;
  return own.fault;
}

}  // namespace standin
