# Installs the pages in a folder of their own, with the folders that their links name.  (DOCS
# of PGXS knows no folders, and is a variable of the benchmark.)

PAGES_DIR = $(docdir)/$(docmoduledir)/$(EXTENSION)

install: install-pages
installdirs: installdirs-pages
uninstall: uninstall-pages

.PHONY: install-pages installdirs-pages uninstall-pages
installdirs-pages:
	$(MKDIR_P) '$(DESTDIR)$(PAGES_DIR)/doc/images'

install-pages: installdirs-pages
	$(INSTALL_DATA) $(addprefix $(srcdir)/,README.md CHANGELOG.md CONTRIBUTING.md LICENSE) '$(DESTDIR)$(PAGES_DIR)'
	$(INSTALL_DATA) $(wildcard $(srcdir)/doc/*.md) '$(DESTDIR)$(PAGES_DIR)/doc'
	$(INSTALL_DATA) $(wildcard $(srcdir)/doc/images/*.svg) '$(DESTDIR)$(PAGES_DIR)/doc/images'

uninstall-pages:
	rm -rf '$(DESTDIR)$(PAGES_DIR)'
