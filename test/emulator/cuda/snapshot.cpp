/**
 * Device memory is write-protected: the first write to a page interrupts a kernel, and the page is copied.
 * Only pages that were written since the last kernel are protected again, so the cost of a kernel depends on
 * its writes, not on the device's memory. Changes of the preceding kernel can't even be read in its snapshot:
 * the first access swaps old and new bytes. So blocks that read nothing before they wait cost no copies.
 */
#include "snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "control.h"
#include "launch.h"
#include "memory.h"

namespace emulator {

/** A page that a kernel has changed, before it and after it. */
struct Page {
  std::vector<char> before, after;
  /** The bytes when the snapshot was shown; other kernels may have changed them since. */
  std::vector<char> present;

  bool isChanged(size_t at) const { return before[at] != after[at]; }
};

struct Snapshot {
  /** By address. */
  std::map<uint64_t, Page> pages;
};

namespace {

/** A snapshot is hidden until the first access. */
enum class View { present, hiddenSnapshot, shownSnapshot };

/** A running kernel, and the snapshot that keeps its writes for the next one. */
struct Watch {
  Snapshots before;
  std::shared_ptr<Snapshot> snapshot = std::make_shared<Snapshot>();
  View view = View::present;
};

// One call at a time, for all threads: these need no lock.
/** Write-protected device memory, except for its open pages: address → size. */
std::map<uint64_t, uint64_t> guarded;
/** Pages that were written since: address → size. */
std::map<uint64_t, uint64_t> opened;

// Only for its thread: a signal on another thread is not related.
__thread Watch* watch = nullptr;

char* bytesAt(uint64_t address) { return reinterpret_cast<char*>(address); }

uint64_t sizeOf(uint64_t size) { return size; }
uint64_t sizeOf(const Page&) { return pageBytes; }

/** Adjacent ranges take one call. */
template <class Thing>
void protect(const std::map<uint64_t, Thing>& things, int access) {
  for (auto each = things.begin(); each != things.end();) {
    const uint64_t start = each->first;
    uint64_t end = start;
    for (; each != things.end() && each->first == end; ++each) end += sizeOf(each->second);
    mprotect(bytesAt(start), end - start, access);
  }
}

/** As before the kernel's first write to it. */
void keepPage(uint64_t address) {
  std::vector<char>& before = watch->snapshot->pages[address].before;
  if (before.empty()) before.assign(bytesAt(address), bytesAt(address + pageBytes));
}

/** Protects open pages, and memory that has been mapped since. */
void guardMemory() {
  protect(opened, PROT_READ);
  opened.clear();
  forEachDeviceMemory([](uint64_t address, uint64_t size) {
    if (guarded.emplace(address, size).second) mprotect(bytesAt(address), size, PROT_READ);
  });
}

void releaseMemory() {
  protect(guarded, PROT_READ | PROT_WRITE);
  guarded.clear();
  opened.clear();
}

void showSnapshot() {
  watch->view = View::shownSnapshot;
  for (const auto& snapshot : watch->before) {
    protect(snapshot->pages, PROT_READ | PROT_WRITE);
    for (const auto& each : snapshot->pages) {
      keepPage(each.first);
      opened[each.first] = pageBytes;
    }
  }
  for (const auto& snapshot : watch->before) {
    for (auto& [address, page] : snapshot->pages) {
      char* bytes = bytesAt(address);
      page.present.assign(bytes, bytes + pageBytes);
      for (size_t at = 0; at < pageBytes; ++at) {
        if (page.isChanged(at)) bytes[at] = page.before[at];
      }
    }
  }
}

/** False if the snapshot has changed since it was shown. */
bool restore(Snapshot& snapshot) {
  bool isSame = true;
  for (auto& [address, page] : snapshot.pages) {
    char* bytes = bytesAt(address);
    for (size_t at = 0; at < pageBytes; ++at) {
      if (!page.isChanged(at)) continue;
      isSame = isSame && bytes[at] == page.before[at];
      bytes[at] = page.present[at];
    }
  }
  return isSame;
}

/** Of the pages that the kernel has written, those that it changed are its snapshot. */
void endSnapshot() {
  auto& pages = watch->snapshot->pages;
  for (auto each = pages.begin(); each != pages.end();) {
    auto& [address, page] = *each;
    page.after.assign(bytesAt(address), bytesAt(address + pageBytes));
    each = page.before == page.after ? pages.erase(each) : std::next(each);
  }
}

}  // namespace

int runAfter(Snapshots& snapshots, int nodeType, const Work& work) {
  const bool isKept = setting("early") != 0;
  if (!isKept) releaseMemory();
  if (nodeType != kernelNode || !isKept) {
    snapshots.clear();
    return work();
  }
  catchSignals();
  Watch current;
  current.before.swap(snapshots);
  guardMemory();
  watch = &current;
  const int status = work();
  endSnapshot();
  watch = nullptr;
  if (!current.snapshot->pages.empty()) snapshots.push_back(current.snapshot);
  return status;
}

bool hasSnapshot() { return watch != nullptr && !watch->before.empty(); }

void enterSnapshot() {
  watch->view = View::hiddenSnapshot;
  for (const auto& snapshot : watch->before) {
    protect(snapshot->pages, PROT_NONE);
    // Earlier blocks may have opened them.
    for (const auto& each : snapshot->pages) opened.erase(each.first);
  }
}

bool leaveSnapshot() {
  bool isSame = true;
  const bool wasShown = watch->view == View::shownSnapshot;
  watch->view = View::present;
  // In reverse order: two of them may have changed the same page.
  for (auto snapshot = watch->before.rbegin(); snapshot != watch->before.rend(); ++snapshot) {
    if (wasShown) isSame = restore(**snapshot) && isSame;
    else protect((*snapshot)->pages, PROT_READ);
  }
  return isSame;
}

bool openPage(const void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  auto next = guarded.upper_bound(address);
  if (next == guarded.begin()) return false;
  const auto& [start, size] = *--next;
  if (address - start >= size) return false;
  const uint64_t page = start + (address - start) / pageBytes * pageBytes;
  const auto hasPage = [&](const std::shared_ptr<Snapshot>& snapshot) { return snapshot->pages.count(page) > 0; };
  if (watch != nullptr && watch->view == View::hiddenSnapshot &&
      std::any_of(watch->before.begin(), watch->before.end(), hasPage)) {
    showSnapshot();
    return true;
  }
  if (!opened.emplace(page, pageBytes).second) return false;
  if (watch != nullptr) keepPage(page);
  mprotect(bytesAt(page), pageBytes, PROT_READ | PROT_WRITE);
  return true;
}

void dropPages(uint64_t address, uint64_t size) {
  for (auto* ranges : {&guarded, &opened}) {
    ranges->erase(ranges->lower_bound(address), ranges->lower_bound(address + size));
  }
}

}  // namespace emulator
