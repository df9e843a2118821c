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

/** The text for g++: the source, followed by the table of its kernels. */
std::string withTable(const std::string& source, const std::string& name) {
  const std::string bare = withoutComments(source);
  const std::string isCooperative = hasWaitingThreads(bare) ? "true" : "false";
  std::string table;
  const auto entries = findEntries(bare);
  for (const Entry& entry : entries) {
    table += "EMULATOR_KERNEL(" + entry.name + ", " + entry.maxThreads + ", " + isCooperative + ", " + entry.cluster + "), ";
  }
  std::string file = name;
  for (char& letter : file) {
    if (letter == '"' || letter == '\\' || letter == '\n') letter = '_';
  }
  return "#line 1 \"" + file + "\"\n" + source + "\n#line 1 \"the emulator's table\"\nEMULATOR_MODULE(" +
         std::to_string(entries.size()) + ", " + table + ")\n";
}

/** The error that ptxas would report; empty for none. */
std::string findExcess(const std::string& path) {
  void* object = openKernel(path);
  if (object == nullptr) return dlerror();
  const auto* table = static_cast<const EmulatorModule*>(dlsym(object, "emulator_module"));
  const long shared = table ? table->sharedEnd - table->sharedStart : 0;
  dlclose(object);
  if (shared <= emulatorSharedLimit) return "";
  return "ptxas error   : Entry function uses too much shared data (" + std::to_string(shared) + " bytes, " +
         std::to_string(emulatorSharedLimit) + " max)";
}

/** Writes the object; returns the log if that fails. */
std::string compileTo(const std::string& path, const std::string& allFlags, const std::string& text) {
  static std::atomic<int> serial{0};
  const std::string part = kernelFolder() + "/" + std::to_string(getpid()) + "-" + std::to_string(++serial);
  if (!writeFile(part + ".cu", text)) return "no file could be written to " + kernelFolder();
  const std::string header = precompiledHeader(allFlags, part);
  const std::string command = "g++ " + allFlags + " -I" + quote(libraryFolder()) + " -include " + header + " -x c++ " +
                              quote(part + ".cu") + " -o " + quote(part + ".so") + " " + linkFlags;
  const Ended ended = run(command);
  unlink((part + ".cu").c_str());
  const std::string excess = ended.status == 0 ? findExcess(part + ".so") : "";
  if (ended.status == 0 && excess.empty()) {
    std::rename((part + ".so").c_str(), path.c_str());
    return "";
  }
  unlink((part + ".so").c_str());
  const std::string log = ended.output + excess;
  return log.empty() ? "g++ ended with code " + std::to_string(ended.status) : log;
}

}  // namespace

int emulationNumber() { return static_cast<int>(hashOf(emulation() + flags + linkFlags, 0xcbf29ce484222325ull) % 100000); }

Compiled compile(const std::string& source, const std::string& name, const CompileOptions& options) {
  const bool withClusters = hasClusters(source);
  if (withClusters && options.architecture != 0 && (options.architecture & ~onlyThisCapability) < 90)
    return {compilationFailed, "error: __cluster_dims__ is not supported for this GPU architecture", ""};
  if (const int line = findPointerCast(withoutComments(source)))
    return {compilationFailed, name + ":" + std::to_string(line) + ": error: use reinterpret_cast, which checks the pointer's alignment", ""};
  const std::string text = withTable(source, name);
  const std::string allFlags = flagsFor(options) + (withClusters ? " -DEMULATOR_CLUSTERS" : "");
  const std::string hash = nameOf(allFlags + linkFlags + emulation() + text);
  const std::string folder = kernelFolder();
  const std::string path = folder + "/" + hash + ".so";
  if (access(path.c_str(), R_OK) != 0) {
    mkdir(folder.c_str(), 0700);
    const KernelLock lock(path);
    const bool isCompiled = access(path.c_str(), R_OK) == 0;
    const std::string log = isCompiled ? "" : compileTo(path, allFlags, text);
    if (!log.empty()) return {compilationFailed, log, ""};
  }
  if (options.architecture == 0) return {0, "", ""};
  const std::string object = readFile(path);
  EmulatorImage image = {};
  std::memcpy(image.magic, EMULATOR_IMAGE_MAGIC, sizeof image.magic);
  image.size = object.size();
  std::memcpy(image.name, hash.c_str(), hash.size());
  image.architecture = options.architecture;
  return {0, "", std::string(reinterpret_cast<const char*>(&image), sizeof image) + object};
}

}  // namespace emulator
