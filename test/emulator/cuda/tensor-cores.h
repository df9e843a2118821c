/** The tensor core instructions of a thread, compiled once here instead of in every kernel. */
#pragma once

namespace emulator {

void hookMultiplyTiles(int element, unsigned columns, bool isAKMajor, bool isBKMajor, unsigned warpgroupThread,
                       float* sums, const unsigned char* left, const unsigned char* right);
void hookMultiplyRs(unsigned columns, unsigned lane, float* sums, const double (*left)[4], const unsigned char* right);

}  // namespace emulator
