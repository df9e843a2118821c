/**
 * What a launch that begins early sees before it waits, at worst: device memory as it was before the kernel before it. It is kept
 * while the setting `early` is 1.
 */
#pragma once

#include <memory>
#include <vector>

#include "graph.h"

namespace emulator {

struct Past;

/** Of the kernels right before some work; none where something else stands there. */
using Pasts = std::vector<std::shared_ptr<Past>>;

/** Runs work that comes right behind the kernels of these pasts, and leaves its own in their place. */
int runBehind(Pasts& pasts, int nodeType, const Work& work);

/** Has a kernel right before the one that runs changed anything? */
bool hasPast();
/** From here on the kernel that runs sees the past. */
void enterPast();
/** The present comes back. False where somebody has written what it brings. */
bool leavePast();

/** Was a write to this address stopped for the sake of a past? Then it may go on now. */
bool openPage(const void* address);
/** Memory that is mapped, unmapped or freed: what may be done with it is not the past's to say any more. */
void forgetPages(uint64_t address, uint64_t size);

}  // namespace emulator
