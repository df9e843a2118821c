/** The help dialog with the keyboard shortcuts. */

import { useEffect, useRef } from "preact/hooks";

const keys: readonly (readonly [string, string])[] = [
  ["1 … 5", "Learning, Speed, Memory, Incidents, About this run"],
  ["/", "search tensors (Memory) or runs"],
  ["← →", "chart: next or previous point; tabs and passes: next or previous one"],
  ["Shift ← →", "zoomed chart: pan"],
  ["← → ↑ ↓", "memory picture: next tensor in this direction; table: next row"],
  ["Enter", "memory picture and tables: select"],
  ["+ −", "zoom in or out; 0 or Escape shows everything"],
  ["wheel, drag", "zoom a chart; double-click shows everything"],
  ["?", "show this help"],
];

export function HelpDialog({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen && !dialog.current?.open) dialog.current?.showModal();
    if (!isOpen && dialog.current?.open) dialog.current.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} onClose={onClose} aria-label="Keyboard shortcuts">
      <h2>Keyboard shortcuts</h2>
      <dl class="facts">
        {keys.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </dialog>
  );
}
