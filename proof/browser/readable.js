// Returns what keeps people from reading the page that is shown: an array of texts.
(() => {
	const faults = [], all = s => [...document.querySelectorAll(s)];
	const said = e => (e.outerHTML || e.parentElement.outerHTML).slice(0, 90);
	const shown = e => e.checkVisibility() && e.getBoundingClientRect().right > 0;

	if (document.documentElement.scrollWidth > innerWidth) faults.push("it is wider than the screen");

	// Contrast, as WCAG 2 computes it: 4.5 or more.
	const numbers = c => c.match(/[\d.]+/g).map(Number);
	const light = c => {
		const [r, g, b] = numbers(c).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (c.startsWith("rgb(")) return c;
		}
		return "rgb(255, 255, 255)";
	};
	const contrast = (e, pseudo) => {
		const style = getComputedStyle(e, pseudo);
		const x = light(e.namespaceURI.endsWith("svg") ? style.fill : style.color), y = light(behind(e));
		const ratio = (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
		if (!(ratio >= 4.5)) faults.push("a contrast of " + ratio.toFixed(1) + ": " + said(e));
	};

	// Texts, and where they are.
	const boxes = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const n = walk.currentNode, e = n.parentElement;
		if (!n.data.trim() || !shown(e) || e.closest("title, script, noscript, .skip")) continue;
		contrast(e);
		const range = document.createRange();
		range.selectNodeContents(n);
		for (const b of range.getClientRects()) boxes.push({b, n});
		for (const {0: word, index} of n.data.matchAll(/\w{2,16}/g)) {
			range.setStart(n, index);
			range.setEnd(n, index + word.length);
			if (new Set([...range.getClientRects()].map(b => b.top)).size > 1) faults.push("a word is broken: " + word);
		}
	}
	for (const e of all("body *")) {
		const content = getComputedStyle(e, "::before").content;
		if (content !== "none" && content !== "normal" && shown(e)) contrast(e, "::before");
	}
	boxes.forEach(({b, n}, i) => boxes.slice(i + 1).forEach(({b: c, n: m}) => {
		const wide = Math.min(b.right, c.right) - Math.max(b.left, c.left);
		const high = Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top);
		if (n !== m && wide > 2 && high > 4) faults.push("texts overlap: " + n.data.trim() + " / " + m.data.trim());
	}));

	// What readers of screens and users of keyboards need.
	if (all("h1").length !== 1) faults.push(all("h1").length + " main headings");
	let level = 0;
	for (const h of all("h1, h2, h3, h4")) {
		if (Number(h.tagName[1]) > level + 1) faults.push("a heading skips a level: " + said(h));
		level = Number(h.tagName[1]);
	}
	for (const e of all("th:not([scope])")) faults.push("a header of nothing: " + said(e));
	for (const e of all("table:not(:has(caption))")) faults.push("a table without a caption: " + said(e));
	for (const e of all("td[data-label]")) {
		const heads = e.closest("table").querySelectorAll("thead th");
		if (heads[e.cellIndex].textContent !== e.dataset.label) faults.push("a cell under another header: " + said(e));
	}
	for (const e of all("input:not([type=hidden])")) if (!e.labels.length) faults.push("no label: " + said(e));
	for (const e of all("a, button")) if (!e.textContent.trim()) faults.push("no text: " + said(e));
	for (const e of all("svg:not(svg svg)")) if (!e.getAttribute("aria-label")) faults.push("no label: " + said(e));
	const ids = all("[id]").map(e => e.id);
	if (new Set(ids).size !== ids.length) faults.push("an ID twice: " + ids);
	if (all("[aria-live], [role=status]").length > 1) faults.push("more than one text is read out when it changes");
	for (const e of all("a, button, input:not([type=hidden]), summary")) {
		e.focus();
		const {outlineStyle, outlineWidth} = getComputedStyle(e);
		if (outlineStyle === "none" || parseFloat(outlineWidth) < 1) faults.push("the focus is not seen: " + said(e));
	}
	document.activeElement.blur();
	return faults;
})()
