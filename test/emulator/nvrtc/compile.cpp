/**
 * Compiles a kernel with g++ into a shared object, in a folder that all versions of the emulator share. The
 * object's name is the hash of all inputs, so a kernel is compiled once on a machine.
 */
#include "compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "../kernel-table.h"
#include "../architecture.h"
#include "../kernel-folder.h"
#include "source.h"

namespace emulator {

namespace {

constexpr int compilationFailed = 6;

/**
 * A kernel includes nothing. Vector loads read memory under another type than it was written with. Without
 * -frounding-math GCC replaces 0 - x by -x if x was an integer. The sanitizer's checks call the handler of the emulation, so its library is not linked.
 */
const char* const flags =
    "-std=c++17 -pipe -fPIC -nostdinc -nostdinc++ -fvisibility=hidden -fno-exceptions "
    "-fno-rtti -fno-asynchronous-unwind-tables -fno-stack-protector -fno-math-errno -frounding-math "
    "-fno-strict-aliasing -fsanitize=bounds -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-function "
    "-Wno-maybe-uninitialized -Wno-tautological-compare -fno-ident";
/** Without -lm, which takes half of the linker's time: openKernel() has the mathematical functions. */
const char* const linkFlags =
    "-shared -nostdlib -s -fno-use-linker-plugin -Wl,-z,noseparate-code,--build-id=none";

std::string readFile(const std::string& path) {
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  char part[1 << 16];
  for (size_t size; (size = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, size);
  std::fclose(file);
  return text;
}

bool writeFile(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool isWhole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && isWhole;
}

/** FNV-1a, 64 bits. */
uint64_t hashOf(const std::string& text, uint64_t hash) {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  return hash;
}

std::string nameOf(const std::string& text) {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx",
                static_cast<unsigned long long>(hashOf(text, 0xcbf29ce484222325ull)),
                static_cast<unsigned long long>(hashOf(text, 0x84222325cbf29ce4ull)));
  return name;
}

const std::string& emulation() {
  static const std::string folder = libraryFolder();
  static const std::string text = readFile(folder + "/emulation.h") + readFile(folder + "/kernel-table.h");
  return text;
}

std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

struct Ended {
  int status;
  std::string output;
};

Ended run(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "no process could be started"};
  std::string output;
  char part[4096];
  for (size_t size; (size = std::fread(part, 1, sizeof part, pipe)) > 0;) output.append(part, size);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

std::string flagsFor(const CompileOptions& options) {
  std::string all = flags;
  // Kernels run briefly, and -O0 compiles fastest; only an optimizer contracts a product and a sum.
  all += options.hasFma ? " -O1 -ffp-contract=fast" : " -O0 -ffp-contract=off";
#if defined(__x86_64__)
  // The others call fma. With the instruction, g++ prepares for wider registers in every kernel, which takes longer than the calls.
  if (options.hasFma && __builtin_cpu_supports("fma")) all += " -mfma";
#endif
  return all;
}

/**
 * The name of the header to include: the emulation, precompiled once for each set of flags, which saves a fifth of the time of a small
 * kernel. If that fails, g++ reads the emulation itself.
 */
std::string precompiledHeader(const std::string& allFlags, const std::string& part) {
  const std::string name = "emulation-" + nameOf(allFlags) + ".h", path = libraryFolder() + "/" + name;
  if (access((path + ".gch").c_str(), R_OK) == 0) return name;
  if (!writeFile(part + ".h", "#include \"emulation.h\"\n")) return "emulation.h";
  const std::string command = "g++ " + allFlags + " -x c++-header -I" + quote(libraryFolder()) + " " + quote(part + ".h") +
                              " -o " + quote(part + ".gch");
  const bool isCompiled = run(command).status == 0;
  // Another process may do the same: each file appears whole.
  if (isCompiled && std::rename((part + ".h").c_str(), path.c_str()) == 0 &&
      std::rename((part + ".gch").c_str(), (path + ".gch").c_str()) == 0)
    return name;
  unlink((part + ".h").c_str());
  unlink((part + ".gch").c_str());
  return "emulation.h";
}

bool hasClusters(const std::string& source) {
  for (const Entry& entry : findEntries(withoutComments(source))) {
    if (entry.cluster != "1") return true;
  }
  return false;
}

/** While it exists, other processes that need the kernel wait: one of the ranks of a run compiles it, for all. */
class KernelLock {
  std::string path;
  int file;

 public:
  explicit KernelLock(const std::string& kernel) : path(kernel + ".lock"), file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (file >= 0) flock(file, LOCK_EX);
  }
  ~KernelLock() {
    unlink(path.c_str());
    if (file >= 0) close(file);
  }
  KernelLock(const KernelLock&) = delete;
};

/** A kernel's file in the folder, and its module's name. */
struct Module {
  std::string name;
  std::string path;
};

Module moduleOf(const NamedSource& kernel, const std::string& allFlags) {
  const std::string name = nameOf(allFlags + linkFlags + emulation() + kernel.name + '\n' + kernel.source);
  return {name, kernelFolder() + "/" + name + ".so"};
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

/** The text for g++: the source, followed by the table of its kernels. In a namespace, it can be in one file with others. */
std::string textOf(const NamedSource& kernel, const std::string& module, bool isInNamespace) {
  const std::string bare = withoutComments(kernel.source);
  const std::string isCooperative = hasWaitingThreads(bare) ? "true" : "false";
  std::string table;
  const auto entries = findEntries(bare);
  for (const Entry& entry : entries) {
    table += "EMULATOR_KERNEL(" + entry.name + ", " + entry.maxThreads + ", " + isCooperative + ", " + entry.cluster + "), ";
  }
  std::string file = kernel.name;
  for (char& letter : file) {
    if (letter == '"' || letter == '\\' || letter == '\n') letter = '_';
  }
  const std::string text = "#undef EMULATOR_MODULE_NAME\n#define EMULATOR_MODULE_NAME \"" + module + "\"\n" +
                           (isInNamespace ? "namespace emulator_" + module + " {\n" : "") + "#line 1 \"" + file + "\"\n" +
                           (isInNamespace ? withoutLinkage(kernel.source) : kernel.source) + "\n#line 1 \"the emulator's table\"\n" +
                           "EMULATOR_MODULE(" + module + ", " + std::to_string(entries.size()) + ", " + table + ")\n";
  return isInNamespace ? text + "}\n" : text;
}

/** The error that ptxas would report; empty for none. */
std::string findExcess(const std::string& path, const std::string& module) {
  void* object = openKernel(path);
  if (object == nullptr) return dlerror();
  const EmulatorModule* table = findModule(object, module);
  const long shared = table ? table->sharedEnd - table->sharedStart : 0;
  dlclose(object);
  if (shared <= emulatorSharedLimit) return "";
  return "ptxas error   : Entry function uses too much shared data (" + std::to_string(shared) + " bytes, " +
         std::to_string(emulatorSharedLimit) + " max)";
}

/** A name for files of this call, without their ending. */
std::string unfinishedPath() {
  static std::atomic<int> serial{0};
  return kernelFolder() + "/" + std::to_string(getpid()) + "-" + std::to_string(++serial);
}

/** Compiles the text of `part`.cu to `part`.so; returns the log if that fails. */
std::string callCompiler(const std::string& part, const std::string& allFlags, const std::string& text) {
  if (!writeFile(part + ".cu", text)) return "no file could be written to " + kernelFolder();
  const std::string header = precompiledHeader(allFlags, part);
  const std::string command = "g++ " + allFlags + " -I" + quote(libraryFolder()) + " -include " + header + " -x c++ " +
                              quote(part + ".cu") + " -o " + quote(part + ".so") + " " + linkFlags;
  const Ended ended = run(command);
  unlink((part + ".cu").c_str());
  if (ended.status == 0) return "";
  return ended.output.empty() ? "g++ ended with code " + std::to_string(ended.status) : ended.output;
}

/** Writes the object; returns the log if that fails. */
std::string compileTo(const Module& module, const std::string& allFlags, const NamedSource& kernel) {
  const std::string part = unfinishedPath();
  std::string log = callCompiler(part, allFlags, textOf(kernel, module.name, false));
  if (log.empty()) log = findExcess(part + ".so", module.name);
  if (log.empty()) std::rename((part + ".so").c_str(), module.path.c_str());
  else unlink((part + ".so").c_str());
  return log;
}

/** Writes one object under the name of each module. The loader sees by its inode that it is the same. */
void compileGroup(const std::vector<const NamedSource*>& kernels, const std::string& allFlags) {
  std::string text;
  std::vector<Module> modules;
  for (const NamedSource* kernel : kernels) {
    modules.push_back(moduleOf(*kernel, allFlags));
    text += textOf(*kernel, modules.back().name, true);
  }
  const std::string part = unfinishedPath();
  if (callCompiler(part, allFlags, text).empty()) {
    for (const Module& module : modules) {
      // The name of a kernel with an error stays free. One that exists has been compiled by another process.
      const bool isLinked = !findExcess(part + ".so", module.name).empty() || link((part + ".so").c_str(), module.path.c_str()) == 0;
      if (!isLinked && errno != EEXIST) break;
    }
  }
  unlink((part + ".so").c_str());
}

/** Groups of kernels have at most so much source: an image has the whole object of its group. */
constexpr size_t maxGroupBytes = 100'000;

}  // namespace

int emulationNumber() { return static_cast<int>(hashOf(emulation() + flags + linkFlags, 0xcbf29ce484222325ull) % 100000); }

Compiled compile(const std::string& source, const std::string& name, const CompileOptions& options) {
  const bool withClusters = hasClusters(source);
  if (withClusters && options.architecture != 0 && (options.architecture & ~onlyThisCapability) < 90)
    return {compilationFailed, "error: __cluster_dims__ is not supported for this GPU architecture", ""};
  if (const int line = findPointerCast(withoutComments(source)))
    return {compilationFailed, name + ":" + std::to_string(line) + ": error: use reinterpret_cast, which checks the pointer's alignment", ""};
  const NamedSource kernel = {name, source};
  const std::string allFlags = flagsFor(options) + (withClusters ? " -DEMULATOR_CLUSTERS" : "");
  const Module module = moduleOf(kernel, allFlags);
  if (!exists(module.path)) {
    mkdir(kernelFolder().c_str(), 0700);
    const KernelLock lock(module.path);
    const std::string log = exists(module.path) ? "" : compileTo(module, allFlags, kernel);
    if (!log.empty()) return {compilationFailed, log, ""};
  }
  if (options.architecture == 0) return {0, "", ""};
  const std::string object = readFile(module.path);
  EmulatorImage image = {};
  std::memcpy(image.magic, EMULATOR_IMAGE_MAGIC, sizeof image.magic);
  image.size = object.size();
  std::memcpy(image.name, module.name.c_str(), module.name.size());
  image.architecture = options.architecture;
  return {0, "", std::string(reinterpret_cast<const char*>(&image), sizeof image) + object};
}

void compileTogether(const std::vector<NamedSource>& kernels) {
  const std::string allFlags = flagsFor({0, false});
  mkdir(kernelFolder().c_str(), 0700);
  std::string all;
  for (const NamedSource& kernel : kernels) all += moduleOf(kernel, allFlags).name;
  // The ranks of a run come here with the same kernels at the same time.
  const KernelLock lock(kernelFolder() + "/" + nameOf(all));
  std::vector<const NamedSource*> group;
  size_t groupBytes = 0;
  const auto endGroup = [&] {
    if (group.size() > 1) compileGroup(group, allFlags);
    group.clear();
    groupBytes = 0;
  };
  for (const NamedSource& kernel : kernels) {
    // Dynamic shared memory is in the object, which would be large for all. Clusters have other flags.
    const bool isOwn = kernel.source.find("dynamicSharedMemory(") != std::string::npos || hasClusters(kernel.source);
    if (isOwn || findPointerCast(withoutComments(kernel.source)) != 0 || exists(moduleOf(kernel, allFlags).path)) continue;
    if (groupBytes + kernel.source.size() > maxGroupBytes) endGroup();
    group.push_back(&kernel);
    groupBytes += kernel.source.size();
  }
  endGroup();
}

}  // namespace emulator
