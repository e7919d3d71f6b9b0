// Readings that can be watched and stopped, as the Worker runs them.

/** Lets messages in, and the browser draw: a task, not a microtask. (In Node one port's messages may keep others' waiting.) */
export const pause = globalThis.setImmediate ? () => new Promise(setImmediate) : (() => {
  const { port1, port2 } = new MessageChannel();
  const waiting = [];
  port1.onmessage = () => waiting.shift()?.();
  return () => new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(null);
  });
})();

/** What can be stopped, with an error if it is not to end well. `watched`: somebody is told how far it is, and hears. */
export function stoppable(more) {
  const state = { stopped: false, wake: () => {}, heard: () => {}, ...more };
  state.stop = (error) => {
    state.stopped = true;
    state.error ??= error;
    state.wake();
    state.heard();
  };
  return state;
}

/**
 * What a reading asks between pieces: it tells how far it is, lets messages in, and says whether to go on. Whoever
 * watches has heard by then: what they do about it comes before the next piece.
 */
export const between = (state, tell) => async (read) => {
  // Stopped during the last piece, or before another attempt: `stop` has been, and would not end another wait.
  if (state.stopped) return false;
  const heard = state.watched && new Promise((resolve) => (state.heard = resolve));
  tell(read);
  await (heard || pause());
  return !state.stopped;
};
