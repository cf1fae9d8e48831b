# In a clone, run `make`, then `sudo make install`. Neither needs the network after `cargo fetch --locked` has run.
#
#   make install PREFIX=/usr DESTDIR=/srv/root     for packages of distributions
#   make uninstall

PREFIX = /usr/local
DESTDIR =
TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
TREE = target/install

all:
	cargo xtask dist --target '$(TARGET)' --tree --out $(TREE)

install uninstall:
	@test -x $(TREE)/install.sh || { echo "run make first, without root" >&2; exit 1; }
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' $(TREE)/install.sh $(if $(filter uninstall,$@),--uninstall)

.PHONY: all install uninstall
