// The way of a script in an output to the kernel, if there is one; shared by the report and the timeline.

/** @typedef {{ask: (question: string) => Promise<string>}} DetailSource */

/**
 * Two hidden core widgets carry questions to the kernel and its answers back: JupyterLab gives scripts no other way.
 * In Colab its own call does. @param {string} id @returns {DetailSource | null}
 */
function findSource(id) {
  const colab = /** @type {any} */ (window).google?.colab?.kernel;
  if (colab && colab.accessAllowed) {
    return {
      async ask(question) {
        const result = await colab.invokeFunction(`profnb.${id}`, [question], {});
        return result.data['application/json'].answer;
      },
    };
  }
  /** @param {string} part @returns {HTMLElement | null} */
  const find = (part) => document.querySelector(`.profnb-${part}-${CSS.escape(id)}`);
  if (!find('ask') || !find('reply')) return null;
  let count = 0;
  return {
    ask(question) {
      const input = find('ask')?.querySelector('input');
      if (!input) return Promise.resolve('');
      const number = ++count;
      input.value = `${number} ${question}`;
      input.dispatchEvent(new Event('input', {bubbles: true}));
      return new Promise((resolve) => {
        const until = Date.now() + (question === 'hello' ? 3000 : 15000);
        const look = () => {
          const reply = /** @type {HTMLElement | null} */ (find('reply')?.querySelector(`[data-number="${number}"]`));
          if (reply) resolve(reply.dataset.answer || '');
          else if (Date.now() > until || number !== count) resolve('');
          else setTimeout(look, 40);
        };
        look();
      });
    },
  };
}
