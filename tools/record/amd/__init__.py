"""AMD's forms: machine code of gfx942, gfx1100 and gfx1201. Next: `build`, what a form's text means."""
