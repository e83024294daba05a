// Keeps the page up to date. Without this script, each view is what it was when it was loaded.
'use strict';

(() => {
  const interval = 1000, patience = 4000, retryAfter = 2000, maxLines = 500;
  const live = document.getElementById('live');
  const state = document.getElementById('state');
  const pause = document.getElementById('pause');
  const tail = document.getElementById('tail');
  const following = tail !== null;
  const staleAfter = following ? 6000 : 5000; // eventd sends a frame of a tail every 4 s
  let answered = Date.now(), reason = '', paused = false;

  // show says how old the page is.
  function show() {
    const age = Date.now() - answered;
    const stale = !paused && !document.hidden && age > staleAfter;
    document.body.classList.toggle('stale', stale);
    if (stale) unknown();
    const failing = live.hasAttribute('data-problem');
    document.body.classList.toggle('live', !paused && !stale && !failing);
    let text = failing ? 'Trying again' : 'Live';
    if (paused) {
      text = 'Paused' + (held.length > 0 ? ', ' + held.length + ' new' : '');
    } else if (stale) {
      text = (following ? 'Stale: nothing from eventd for ' : 'Stale: no answer for ') + Math.round(age / 1000) + ' s' + (reason ? '. ' + reason : '');
    }
    if (state.textContent !== text) state.textContent = text;
  }

  // unknown says of the status that nothing is known to be well, when not even kubectl eventd page answers. The next
  // answer morphs that back.
  function unknown() {
    const headline = live.querySelector('.headline h1');
    if (headline === null || live.hasAttribute('data-problem') || headline.dataset.unknown) return;
    headline.dataset.unknown = true;
    headline.textContent = 'Unknown since ' + new Date(answered).toLocaleTimeString() + '.';
    headline.parentElement.className = 'headline bad';
    for (const badge of live.querySelectorAll('.health')) {
      badge.className = 'health';
      badge.textContent = 'unknown';
    }
  }

  function answer() { answered = Date.now(); reason = ''; }

  // morph makes a tree like another one, and keeps the nodes that stay: their focus, the selection in them,
  // and details that are open.
  function morph(from, to) {
    for (const {name} of [...from.attributes]) {
      if (!to.hasAttribute(name) && !(name === 'open' && from.localName === 'details')) from.removeAttribute(name);
    }
    for (const {name, value} of to.attributes) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    const keyed = new Map();
    for (const child of from.children) {
      if (child.dataset.key) keyed.set(child.dataset.key, child);
    }
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      const key = next.dataset?.key;
      const match = key ? keyed.get(key) : at;
      if (!match || match.nodeName !== next.nodeName || (!key && match.dataset?.key)) {
        from.insertBefore(document.importNode(next, true), at);
        continue;
      }
      if (match === at) at = at.nextSibling; else from.insertBefore(match, at);
      if (key) keyed.delete(key);
      if (match.nodeType === Node.ELEMENT_NODE) morph(match, next);
      else if (match.nodeValue !== next.nodeValue) match.nodeValue = next.nodeValue;
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  // poll fetches this view as the server renders it now. What cannot be answered is shown only instead of
  // another problem: figures that are old are better than none, and are marked. The status marks its own.
  async function poll() {
    if (paused || document.hidden) return;
    try {
      const got = await fetch(location.href, {cache: 'no-store', redirect: 'error', signal: AbortSignal.timeout(patience)});
      const next = new DOMParser().parseFromString(await got.text(), 'text/html').getElementById('live');
      if (next === null) throw new Error('Run kubectl eventd page again.');
      if (paused) return;
      if (got.ok || live.hasAttribute('data-problem') || document.body.dataset.view === 'status') {
        morph(live, next);
        answer();
        if (!following && document.getElementById('tail')) location.reload(); // there is a stream now
      } else {
        reason = next.querySelector('#problem h1')?.textContent ?? '';
      }
    } catch (error) {
      reason = error instanceof TypeError ? 'Does kubectl eventd page still run?' : error.name === 'TimeoutError' ? 'eventd does not answer.' : error.message;
    }
  }

  async function keepPolling() {
    await poll();
    show();
    setTimeout(keepPolling, interval);
  }

  // held has the lines that came while the tail was paused, newest last.
  const held = [];
  let source = null, resumeFrom = '', retry = 0, missing = '';

  function add(lines) {
    for (const line of lines) tail.prepend(line);
    while (tail.childElementCount > maxLines) tail.lastElementChild.remove();
  }

  function line(html) {
    return [...new DOMParser().parseFromString('<ol>' + html + '</ol>', 'text/html').querySelectorAll('ol > li')]
      .map((li) => document.importNode(li, true));
  }

  function note(text) {
    const li = document.createElement('li');
    li.className = 'note';
    li.textContent = text;
    return li;
  }

  function come(lines) {
    if (!paused) return add(lines);
    held.push(...lines);
    held.splice(0, held.length - maxLines);
  }

  function close() {
    clearTimeout(retry);
    if (source !== null) source.close();
    source = null;
  }

  // follow opens the stream where the last one has ended.
  function follow() {
    close();
    const address = new URL(tail.dataset.stream, location.href);
    if (resumeFrom !== '') address.searchParams.set('resourceVersion', resumeFrom);
    if (resumeFrom === null) address.searchParams.delete('resourceVersion');
    source = new EventSource(address);
    const on = (type, act) => source.addEventListener(type, (event) => {
      if (event.lastEventId) resumeFrom = event.lastEventId;
      act(event.data);
      show();
    });
    const again = (why) => { reason = why; close(); retry = setTimeout(follow, retryAfter); };
    on('alive', answer);
    on('item', (html) => { answer(); come(line(html)); });
    on('note', (text) => come([note(text)]));
    on('missing', (text) => { if (text !== missing) come([note(text)]); missing = text; });
    on('ended', () => again(''));
    on('lost', (text) => { come([note(text)]); resumeFrom = null; again(''); });
    on('problem', again);
    source.onerror = () => again('Does kubectl eventd page still run?');
  }

  function toggle() {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    pause.textContent = paused ? 'Go on' : 'Pause';
    if (!paused && following) add(held.splice(0));
    else if (!paused) poll().then(show);
    show();
  }

  pause.hidden = false;
  pause.addEventListener('click', toggle);
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select, textarea')) return;
    if (event.key === 'p') toggle();
    else if (event.key === '/') document.getElementById('search').focus();
    else return;
    event.preventDefault();
  });
  // A hidden tab costs eventd nothing. A tail goes on from where it was.
  document.addEventListener('visibilitychange', () => {
    if (following) document.hidden ? close() : follow();
    else if (!document.hidden) poll().then(show);
  });

  if (following) follow();
  else if (document.body.dataset.view !== 'unknown') keepPolling();
  setInterval(show, 500);
  show();
})();
