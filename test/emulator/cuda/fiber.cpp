/** The switch between fibers: saves callee-saved registers on the stack, and swaps the stacks. */
#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  # Not `ret`: the processor expects that to return to the caller, and loses twenty cycles.
  popq %rdx
  jmp *%rdx
.size emulator_switch, .-emulator_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, %function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emulator_switch, .-emulator_switch
)");
#else
#error "The emulator knows how to switch fibers on x86-64 and on arm64."
#endif

namespace emulator {

namespace {

constexpr size_t stackBytes = 256 << 10;
constexpr size_t guardBytes = 64 << 10;

}  // namespace

char* Stacks::top(size_t index) {
  static std::vector<char*> stacks;
  while (stacks.size() <= index) {
    constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, stackBytes + guardBytes, PROT_NONE, kind, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    // The guard page is below, where an overflowing stack would continue.
    char* stack = static_cast<char*>(memory) + guardBytes;
    mprotect(stack, stackBytes, PROT_READ | PROT_WRITE);
    stacks.push_back(stack);
  }
  // The tops of stacks have different offsets in their pages; otherwise their first lines would share the
  // same cache sets.
  return stacks[index] + stackBytes - index % 32 * 64;
}

void* prepareFiber(char* top, void (*entry)()) {
#if defined(__x86_64__)
  // Six saved registers, the address to continue at, and the slot of a caller's return address.
  auto* frame = reinterpret_cast<uint64_t*>(top) - 8;
  for (int index = 0; index < 8; ++index) frame[index] = 0;
  frame[6] = reinterpret_cast<uint64_t>(entry);
  return frame;
#else
  auto* frame = reinterpret_cast<uint64_t*>(top) - 20;
  for (int index = 0; index < 20; ++index) frame[index] = 0;
  frame[11] = reinterpret_cast<uint64_t>(entry);
  return frame;
#endif
}

}  // namespace emulator
