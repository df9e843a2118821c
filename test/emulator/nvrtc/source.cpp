/**
 * Parses signatures, `extern "C" __global__ void __cluster_dims__(C, 1, 1) __launch_bounds__(T) name(…)`, in
 * a text without comments.
 */
#include "source.h"

#include <algorithm>
#include <cctype>

namespace emulator {

namespace {

bool isWordPart(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_'; }

size_t skipSpace(const std::string& text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

/** The index after the matching closing parenthesis. */
size_t skipParentheses(const std::string& text, size_t at) {
  int depth = 0;
  do {
    if (text[at] == '(') ++depth;
    if (text[at] == ')') --depth;
    ++at;
  } while (at < text.size() && depth > 0);
  return at;
}

/** Up to the first comma that is not inside parentheses. */
std::string firstArgument(const std::string& list) {
  int depth = 0;
  for (size_t at = 0; at < list.size(); ++at) {
    if (list[at] == '(') ++depth;
    if (list[at] == ')') --depth;
    if (list[at] == ',' && depth == 0) return list.substr(0, at);
  }
  return list;
}

}  // namespace

std::string withoutComments(const std::string& text) {
  std::string result = text;
  for (size_t at = 0; at + 1 < result.size(); ++at) {
    if (result[at] != '/' || (result[at + 1] != '/' && result[at + 1] != '*')) continue;
    const bool isLine = result[at + 1] == '/';
    const size_t found = result.find(isLine ? "\n" : "*/", at + 2);
    const size_t end = found == std::string::npos ? result.size() : found + (isLine ? 0 : 2);
    for (; at < end; ++at) {
      if (result[at] != '\n') result[at] = ' ';
    }
    --at;
  }
  return result;
}

std::vector<Entry> findEntries(const std::string& text) {
  static const std::string mark = "__global__", bounds = "__launch_bounds__", dimensions = "__cluster_dims__";
  std::vector<Entry> entries;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    at += mark.size();
    std::string maxThreads = "1024", cluster = "1";
    for (;;) {
      at = skipSpace(text, at);
      const size_t start = at;
      while (at < text.size() && isWordPart(text[at])) ++at;
      if (at == start) break;  // not a signature of the conventions: g++ will report the error
      const std::string word = text.substr(start, at - start);
      at = skipSpace(text, at);
      if (at >= text.size() || text[at] != '(') continue;
      if (word != bounds && word != dimensions) {
        entries.push_back({word, maxThreads, cluster});
        break;
      }
      const size_t end = skipParentheses(text, at);
      const std::string given = text.substr(at + 1, end - at - 2);
      if (word == bounds) maxThreads = firstArgument(given);
      else cluster = given;
      at = end;
    }
  }
  return entries;
}

int findPointerCast(const std::string& text) {
  for (size_t close = text.find(')'); close != std::string::npos; close = text.find(')', close + 1)) {
    const size_t open = text.find_last_of("(,;{}", close - 1);
    if (open == std::string::npos || text[open] != '(') continue;
    std::string type = text.substr(open + 1, close - open - 1);
    const size_t end = type.find_last_not_of(" \n");
    if (end != std::string::npos) type.resize(end + 1);
    if (type.size() > 6 && type.compare(type.size() - 6, 6, " const") == 0) type.resize(type.size() - 6);
    if (type.size() < 2 || type.back() != '*') continue;
    // After a word these are the parameters of a function, or the operand of sizeof.
    const size_t before = text.find_last_not_of(" \n", open == 0 ? 0 : open - 1), after = skipSpace(text, close + 1);
    const bool isAfterReturn = before != std::string::npos && before >= 5 && text.compare(before - 5, 6, "return") == 0;
    if (before != std::string::npos && isWordPart(text[before]) && !isAfterReturn) continue;
    if (after < text.size() && (isWordPart(text[after]) || text[after] == '(' || text[after] == '&'))
      return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(open), '\n'));
  }
  return 0;
}

bool hasWaitingThreads(const std::string& text) {
  for (const char* word : {"__syncthreads", "__syncwarp", "__shfl", "__ballot", "namedBarrierSync", "mbarrierInit", "clusterWait"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

std::string withoutLinkage(const std::string& text) {
  static const std::string linkage = "extern \"C\" __global__";
  std::string result = text;
  for (size_t at = result.find(linkage); at != std::string::npos; at = result.find(linkage, at))
    result.replace(at, linkage.size(), "__global__");
  return result;
}

}  // namespace emulator
