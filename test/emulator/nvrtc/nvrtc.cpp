/** NVRTC's functions: programs, options, logs and compiled code. */
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../architecture.h"
#include "../emulator.h"
#include "compile.h"

namespace emulator {

namespace {

enum NvrtcStatus : int { done = 0, invalidInput = 3, invalidProgram = 4, invalidOption = 5 };

struct Program {
  std::string source;
  std::string name;
  Compiled compiled = {-1, "", ""};
};

std::mutex programsLock;
std::map<uint64_t, std::shared_ptr<Program>> programs;
uint64_t nextProgram = 0xd0ull << 32;

std::shared_ptr<Program> findProgram(uint64_t handle) {
  std::lock_guard<std::mutex> hold(programsLock);
  const auto found = programs.find(handle);
  return found == programs.end() ? nullptr : found->second;
}

/** "sm_90" → 90; a virtual architecture gives no machine code. False for anything else. */
bool readArchitecture(const std::string& text, unsigned& architecture) {
  const bool isReal = text.rfind("sm_", 0) == 0;
  if (!isReal && text.rfind("compute_", 0) != 0) return false;
  const char* digits = text.c_str() + text.find('_') + 1;
  char* end = nullptr;
  const unsigned number = static_cast<unsigned>(std::strtoul(digits, &end, 10));
  const std::string suffix = end;
  architecture = isReal ? number | (suffix == "a" ? onlyThisCapability : 0) : 0;
  return number >= 75 && (suffix.empty() || suffix == "a");
}

/** The options that Holdfast uses; none that relaxes arithmetic. */
bool readOption(const std::string& option, CompileOptions& options) {
  const size_t equals = option.find('=');
  const std::string key = option.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (key == "--gpu-architecture" || key == "-arch") return readArchitecture(value, options.architecture);
  if (key == "--fmad" || key == "-fmad") {
    options.hasFma = value == "true";
    return value == "true" || value == "false";
  }
  if (key == "--std" || key == "-std") return value == "c++17";
  if (key == "--prec-div" || key == "--prec-sqrt") return value == "true";
  if (key == "--ftz") return value == "false";
  for (const char* known : {"--device-as-default-execution-space", "-default-device", "--generate-line-info",
                            "-lineinfo", "--restrict", "--extra-device-vectorization", "--disable-warnings", "-w"}) {
    if (option == known) return true;
  }
  return false;
}

}  // namespace

}  // namespace emulator

using namespace emulator;

#define NOTE() \
  if (const int planned_ = emulator_note(__func__)) return planned_

EMULATOR_EXPORT int nvrtcVersion(int* major, int* minor) {
  NOTE();
  if (major == nullptr || minor == nullptr) return invalidInput;
  *major = 13;
  *minor = emulationNumber();
  return done;
}

EMULATOR_EXPORT const char* nvrtcGetErrorString(int status) {
  static const char* const names[] = {"NVRTC_SUCCESS",
                                      "NVRTC_ERROR_OUT_OF_MEMORY",
                                      "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                      "NVRTC_ERROR_INVALID_INPUT",
                                      "NVRTC_ERROR_INVALID_PROGRAM",
                                      "NVRTC_ERROR_INVALID_OPTION",
                                      "NVRTC_ERROR_COMPILATION",
                                      "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"};
  emulator_note(__func__);
  return status >= 0 && status < 8 ? names[status] : "NVRTC_ERROR unknown";
}

EMULATOR_EXPORT int nvrtcCreateProgram(uint64_t* program, const char* source, const char* name, int headers,
                                      const char**, const char**) {
  NOTE();
  if (program == nullptr || source == nullptr || headers != 0) return invalidInput;
  std::lock_guard<std::mutex> hold(programsLock);
  nextProgram += 16;
  programs[nextProgram] = std::make_shared<Program>(Program{source, name ? name : "default_program"});
  *program = nextProgram;
  return done;
}

EMULATOR_EXPORT int nvrtcDestroyProgram(uint64_t* program) {
  NOTE();
  std::lock_guard<std::mutex> hold(programsLock);
  if (program == nullptr || programs.erase(*program) == 0) return invalidProgram;
  *program = 0;
  return done;
}

EMULATOR_EXPORT int nvrtcCompileProgram(uint64_t handle, int count, const char* const* given) {
  NOTE();
  const auto program = findProgram(handle);
  if (!program) return invalidProgram;
  CompileOptions options;
  for (int index = 0; index < count; ++index) {
    if (readOption(given[index], options)) continue;
    program->compiled = {invalidOption, std::string("nvrtc: error: invalid value for option ") + given[index], ""};
    return invalidOption;
  }
  program->compiled = compile(program->source, program->name, options);
  return program->compiled.status;
}

EMULATOR_EXPORT int nvrtcGetCUBINSize(uint64_t handle, size_t* size) {
  NOTE();
  const auto program = findProgram(handle);
  if (!program) return invalidProgram;
  if (size == nullptr || program->compiled.status != 0) return invalidInput;
  *size = program->compiled.image.size();
  return done;
}

EMULATOR_EXPORT int nvrtcGetCUBIN(uint64_t handle, char* cubin) {
  NOTE();
  const auto program = findProgram(handle);
  if (!program) return invalidProgram;
  if (cubin == nullptr || program->compiled.status != 0) return invalidInput;
  std::memcpy(cubin, program->compiled.image.data(), program->compiled.image.size());
  return done;
}

EMULATOR_EXPORT int nvrtcGetProgramLogSize(uint64_t handle, size_t* size) {
  NOTE();
  const auto program = findProgram(handle);
  if (!program) return invalidProgram;
  if (size == nullptr) return invalidInput;
  *size = program->compiled.log.size() + 1;
  return done;
}

EMULATOR_EXPORT int nvrtcGetProgramLog(uint64_t handle, char* log) {
  NOTE();
  const auto program = findProgram(handle);
  if (!program) return invalidProgram;
  if (log == nullptr) return invalidInput;
  std::memcpy(log, program->compiled.log.c_str(), program->compiled.log.size() + 1);
  return done;
}

/** Not NVRTC's: compiles kernels that will be compiled one by one, faster. */
EMULATOR_EXPORT void emulator_compile(int count, const char* const* names, const char* const* sources) {
  std::vector<NamedSource> kernels;
  for (int index = 0; index < count; ++index) kernels.push_back({names[index], sources[index]});
  compileTogether(kernels);
}
