/** The tensor core instructions of a thread, compiled once here instead of in every kernel. */
#pragma once

namespace emulator {

void hookWgmmaSs(int element, unsigned columns, bool isAKMajor, bool isBKMajor, bool accumulates, unsigned warpgroupThread,
                       float* acc, const unsigned char* left, const unsigned char* right);
void hookWgmmaRs(unsigned columns, unsigned lane, float* acc, const double (*left)[4], const unsigned char* right);
void hookWgmmaRsHalves(int element, unsigned columns, bool isBKMajor, bool accumulates, unsigned lane, float* acc, const unsigned (*left)[4],
                       const unsigned char* right, unsigned leadingBytes);
void hookWgmmaCommit();
void hookWgmmaWait(unsigned left);

}  // namespace emulator
