#!/bin/sh
# Becomes the first process of a Debian in memory: `unshare --fork --pid --mount --uts --ipc --cgroup boot.sh DIRECTORY`.
# It has the programs of this system, none of its settings, and systemd without any service.
set -e
shared=$1
mount --make-rprivate /
mount -t tmpfs -o size=4g tmpfs /mnt
cd /mnt
mkdir dev etc old proc run shared sys tmp usr upper work
mkdir -p etc/systemd/system usr var/lib/dpkg/info var/lib/dpkg/updates
mount -t overlay -o lowerdir=/usr,upperdir=upper,workdir=work overlay usr
for directory in bin sbin lib lib64; do
    ! [ -L "/$directory" ] || cp -P "/$directory" "$directory"
done
cp /etc/ld.so.cache etc/ 2>/dev/null || true
echo "root:x:0:0::/root:/bin/sh" >etc/passwd
echo "root:x:0:" >etc/group
echo "passwd: files" >etc/nsswitch.conf
: >etc/machine-id
: >var/lib/dpkg/status
: >var/lib/dpkg/available
printf '[Unit]\nDescription=nothing\n' >etc/systemd/system/nothing.target
mount --rbind /dev dev
mount --bind "$shared" shared
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
pivot_root . old
cd /
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=nothing.target --log-target=journal --log-level=warning
