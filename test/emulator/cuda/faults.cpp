/** The faults of a kernel, including signals of the processor: they end its launch instead of this process. */
#include <signal.h>
#include <ucontext.h>

#include <cstdio>

#include "cluster-memory.h"
#include "launch.h"
#include "snapshot.h"
#include "status.h"

namespace emulator {

__thread Launch* launch = nullptr;
__thread volatile bool isInKernel = false;

[[noreturn]] void fail(int status, const std::string& what) {
  isInKernel = false;
  const EmulatorPosition& position = *launch->module->position;
  launch->fault.status = status;
  launch->fault.text = std::string(launch->kernel->name) + ": " + what + ", block " + std::to_string(position.block.x) +
                       ", thread " + std::to_string(position.thread.x);
  void* unused;
  emulator_switch(&unused, launch->scheduler);
  __builtin_unreachable();
}

[[noreturn]] void failInLine(int status, const std::string& what, int line) {
  fail(status, what + " in line " + std::to_string(line));
}

namespace {

struct sigaction earlierActions[64];

bool isOfEndedBlock(const void* address) {
  const int rank = launch->hasClusterMemory ? clusterRankOf(address) : -1;
  return rank >= 0 && rank < static_cast<int>(launch->blocks.size()) && launch->blocks[rank].left == 0;
}

/** Where a kernel's code continues after a signal. */
[[noreturn]] void failBySignal() {
  const int number = launch->signal;
  if (number == SIGILL) fail(illegalInstruction, "an illegal instruction");
  if (number == SIGFPE) fail(launchFailed, "a division by zero");
  if (isOfEndedBlock(launch->signalAddress)) {
    fail(illegalAddress, "an access to the dynamic shared memory of a block that has ended");
  }
  char address[32];
  std::snprintf(address, sizeof address, "%p", launch->signalAddress);
  fail(illegalAddress, std::string("an access at ") + address);
}

/** Lets the interrupted code continue in `failBySignal`, as if it had called it. */
void divert(ucontext_t& context) {
  const auto target = reinterpret_cast<uint64_t>(&failBySignal);
#if defined(__x86_64__)
  auto& registers = context.uc_mcontext.gregs;
  // Below the red zone of the stack pointer, and aligned as after a call.
  const uint64_t stack = ((static_cast<uint64_t>(registers[REG_RSP]) - 256) & ~15ull) - 8;
  registers[REG_RSP] = static_cast<greg_t>(stack);
  registers[REG_RIP] = static_cast<greg_t>(target);
#else
  context.uc_mcontext.sp = (context.uc_mcontext.sp - 256) & ~15ull;
  context.uc_mcontext.pc = target;
#endif
}

/** Returns for every signal: the system must restore what it changed for the handler. */
void onSignal(int number, siginfo_t* info, void* context) {
  if (number == SIGSEGV && openPage(info->si_addr)) return;
  if (isInKernel) {
    isInKernel = false;
    launch->signal = number;
    launch->signalAddress = info->si_addr;
    return divert(*static_cast<ucontext_t*>(context));
  }
  const struct sigaction& earlier = earlierActions[number];
  if (earlier.sa_flags & SA_SIGINFO) return earlier.sa_sigaction(number, info, context);
  if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) return earlier.sa_handler(number);
  // Not a kernel's fault: the system's default action.
  sigaction(number, &earlier, nullptr);
}

}  // namespace

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

}  // namespace emulator
