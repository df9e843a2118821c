/** Splits a text at the matches of a pattern, with the five ways in which the `tokenizers` package treats a match. */

export const splitBehaviors = [
  "Removed",
  "Isolated",
  "MergedWithPrevious",
  "MergedWithNext",
  "Contiguous",
] as const;

export type SplitBehavior = (typeof splitBehaviors)[number];

interface Piece {
  readonly start: number;
  end: number;
}

interface Part extends Piece {
  readonly isMatch: boolean;
}

/** The parts of a text at a pattern's matches. The pattern must be global. An inverted pattern matches what lies between. */
export function splitText(
  text: string,
  pattern: RegExp,
  behavior: SplitBehavior,
  isInverted = false,
): readonly string[] {
  const parts: Part[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const start = match.index;
    if (start > end) parts.push({ start: end, end: start, isMatch: isInverted });
    end = start + match[0].length;
    parts.push({ start, end, isMatch: !isInverted });
  }
  if (end < text.length) parts.push({ start: end, end: text.length, isMatch: isInverted });
  const pieces = joinParts(parts, behavior);
  return pieces.filter((piece) => piece.end > piece.start).map((piece) => text.slice(piece.start, piece.end));
}

function joinParts(parts: readonly Part[], behavior: SplitBehavior): readonly Piece[] {
  switch (behavior) {
    case "Removed":
      return parts.filter(({ isMatch }) => !isMatch);
    case "Isolated":
      return parts;
    case "Contiguous":
      return joinRuns(parts);
    case "MergedWithPrevious":
      return mergeMatches(parts);
    case "MergedWithNext":
      return mergeWithNext(parts);
  }
}

function joinRuns(parts: readonly Part[]): readonly Piece[] {
  const pieces: Piece[] = [];
  let wasMatch = false;
  for (const { start, end, isMatch } of parts) {
    const last = pieces.at(-1);
    if (last && isMatch === wasMatch) last.end = end;
    else pieces.push({ start, end });
    wasMatch = isMatch;
  }
  return pieces;
}

/** The first match after a piece joins it; a second match in a row is a piece of its own. */
function mergeMatches(parts: readonly Part[]): readonly Piece[] {
  const pieces: Piece[] = [];
  let wasMatch = false;
  for (const { start, end, isMatch } of parts) {
    const last = pieces.at(-1);
    if (last && isMatch && !wasMatch) last.end = end;
    else pieces.push({ start, end });
    wasMatch = isMatch;
  }
  return pieces;
}

function mergeWithNext(parts: readonly Part[]): readonly Piece[] {
  const pieces: { start: number; readonly end: number }[] = [];
  let wasMatch = false;
  for (const { start, end, isMatch } of parts.toReversed()) {
    const last = pieces.at(-1);
    if (last && isMatch && !wasMatch) last.start = start;
    else pieces.push({ start, end });
    wasMatch = isMatch;
  }
  return pieces.reverse();
}
