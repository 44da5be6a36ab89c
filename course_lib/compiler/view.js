const root = event.currentTarget, rows = [...root.querySelectorAll('.listing li')];
if (event.type === 'click') {
  const at = event.target.closest('li[data-l]');
  if (at) {
    const was = at.classList.contains('on');
    root.querySelectorAll('li.on').forEach(li => li.classList.remove('on'));
    if (!was) {
      root.querySelectorAll(`li[data-l='${at.dataset.l}']`).forEach(li => li.classList.add('on'));
      root.querySelectorAll('.source, .listing').forEach(pane => {
        const first = pane.querySelector('li.on');
        if (first && !pane.contains(at)) pane.scrollTop = first.offsetTop - 40;
      });
      const found = rows.filter(li => li.classList.contains('on') && li.checkVisibility()).length;
      root.querySelector('output').textContent = `${found} instructions`;
    }
  }
} else {
  const wanted = root.querySelector('input[type=search]').value.trim().toLowerCase();
  rows.forEach(li => { li.hidden = wanted !== '' && !li.textContent.toLowerCase().includes(wanted); });
  const found = rows.filter(li => li.checkVisibility()).length;
  root.querySelector('output').textContent = wanted ? `${found} instructions` : '';
}
